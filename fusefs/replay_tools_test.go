package fusefs

import "fmt"

// toolReplays are of package managers, editors and rsync.
func toolReplays() []replay {
	return []replay{
		{"seaweedfs#2169", fmt.Sprintf(`
			# Install packages, and then others in their place.
			mkdir $T/packs $T/want; echo '{}' > package.json
			pack() { # VERSION
				for i in $(seq %d); do
					rm -rf $T/want/p$i; mkdir -p $T/want/p$i/lib/deep; cd $T/want/p$i
					echo "module.exports = '$i $1'" > index.js; echo '#!/bin/sh' > run; chmod 755 run
					for f in $(seq 15); do echo "$i $f $1" > lib/deep/$f.js; done
					echo "{\"name\":\"p$i\",\"version\":\"1.0.$1\",\"bin\":\"run\"}" > package.json
					tar czf $T/packs/p$i-$1.tgz --transform s,^.,package, .; cd "$here"
				done
			}
			here=$PWD
			for v in 1 2; do
				pack $v
				npm install --offline --no-audit --no-fund --loglevel=error --cache $T/cache $T/packs/*-$v.tgz > /dev/null
				diff -r -x .package-lock.json -x .bin $T/want node_modules
				test -x node_modules/.bin/p1
			done`, sized(5, 150))},
		{"pnpm#14771", `
			# What pnpm, bun, uv and cargo try: a hard link from a store beside, twice.
			python3 - <<'END'
import os
os.makedirs("store")
for i in range(50):
    with open("store/%d" % i, "w") as f: f.write(str(i))
for target in ("one", "two"):
    os.makedirs(target)
    for i in range(50):
        os.link("store/%d" % i, target + "/%d" % i)
        assert os.stat(target + "/%d" % i).st_ino == os.stat("store/%d" % i).st_ino
assert os.stat("store/7").st_nlink == 3
END
			! ln store/1 one/1 2>/dev/null`},
		{"agentfs#260", `
			# cargo links what it built over what was there.
			mkdir -p target/deps; for i in 1 2 3; do
				echo built $i > target/deps/app; rm -f target/app; ln target/deps/app target/app
				test "$(cat target/app)" = "built $i"
				rm target/deps/app
			done`},
		{"mountpoint#478", `
			echo one > f
			vim.tiny -es -u NONE -c 'normal ix' -c wq f
			test "$(cat f)" = xone; test "$(ls -A)" = f`},
		{"rclone#4936", `
			for i in 1 2 3; do vim.tiny -es -u NONE -c "set backup backupdir=. backupskip=" -c "normal i$i" -c wq f; done
			test "$(cat f)" = 321; test -f f~; rm f~; test "$(ls -A)" = f`},
		{"goofys#41", `
			mkdir -p $T/src/a/b; for i in $(seq 100); do echo $i > $T/src/a/b/$i; done
			ln -s a/b $T/src/link; touch -d 2001-02-03T04:05:06.789 $T/src/a/b/5 $T/src/a
			rsync -a $T/src/ d/; diff -r $T/src d
			test "$(stat -c %.9Y d/a/b/5 d/a)" = "$(stat -c %.9Y $T/src/a/b/5 $T/src/a)"`},
		{"goofys#251", `
			mkdir $T/src; for i in $(seq 50); do random 10K > $T/src/$i; done
			rsync -a $T/src/ d/; test -z "$(rsync -ai $T/src/ d/)"
			echo more >> $T/src/7; test "$(rsync -ai --inplace $T/src/ d/ | wc -l)" = 1
			cmp $T/src/7 d/7; test -z "$(rsync -aic $T/src/ d/)"`},
		{"mountpoint#1344", fmt.Sprintf(`
			for i in $(seq %d); do echo $i > f; done; test "$(cat f)" = %[1]d`, sized(500, 5000))},
	}
}
