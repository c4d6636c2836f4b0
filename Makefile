# The work is done by the scripts in deploy/; see README.md.
.PHONY: run test bench soak check build image clean

run: ## install what is missing, build, and start berth
	@deploy/run.sh $(ARGS)

test: ## the same set-up, then all tests
	@deploy/test.sh

soak: ## all tests, the long ones in full
	@BERTH_SOAK=1 deploy/test.sh

check: ## what a change must pass: format, vet, staticcheck, tests
	@deploy/check.sh

bench: ## measurements; OUT=FILE writes them as JSON too; ONLY=small,git measures these groups of file work
	@deploy/bench.sh $(OUT)

build: ## bin/berth and bin/berth-agent
	@deploy/build.sh

image: build ## the machines' image
	@deploy/image/build.sh

clean: ## remove what was built; state directories and the image stay
	rm -rf bin build preview/web/node_modules
