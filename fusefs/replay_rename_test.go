package fusefs

import "fmt"

// renameReplays are of renames while content is on its way to the bucket.
func renameReplays() []replay {
	return []replay{
		{"s3fs#535", `
			random 8M > $T/src
			cp $T/src .in.f; mv .in.f f; cmp f $T/src`},
		{"s3fs#1453", `
			echo d > a; mv a b; touch -d 2020-01-01 b; chmod 600 b
			test "$(cat b)" = d; test "$(stat -c '%a %Y' b)" = "600 $(date -d 2020-01-01 +%s)"`},
		{"rclone#4293", `
			# A browser makes the target empty and renames the download over it, while
			# the empty one is being uploaded.
			random 8M > $T/src
			: > x; sleep 0.3
			dd if=$T/src of=x.part bs=1M status=none; : > x; mv -f x.part x
			cmp x $T/src`},
		{"rclone#6809", `
			mkdir old; echo 1 > old/f; mv old new; rm -rf new
			mkdir old2; echo 1 > old2/f; sleep 0.3; mv old2 new2; rm -rf new2`},
		{"rclone#4417", `
			mkdir -p $T/src/sub; : > $T/src/empty; : > $T/src/sub/empty; random 100K > $T/src/sub/full
			mkdir .t d
			rsync -a --temp-dir=$PWD/.t $T/src/ d/
			diff -r $T/src d`},
		{"seaweedfs#1242", fmt.Sprintf(`
			python3 - <<'END'
import os
open("a", "w").close()
for i in range(%d):
    os.rename("a", "b"); os.stat("b"); os.rename("b", "a"); os.stat("a")
    try: os.stat("b")
    except FileNotFoundError: continue
    raise Exception("the old name is still there")
END`, sized(500, 5000))},
	}
}
