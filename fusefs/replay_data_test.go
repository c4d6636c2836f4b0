package fusefs

import "fmt"

// dataReplays are of databases, files without a name, holes, appends and the ways
// to have one file open.
func dataReplays() []replay {
	return []replay{
		{"hf-mount#103", fmt.Sprintf(writers, sized(40, 500))},
		{"s3fs#1038", `
			(rm -f f; echo foo) > f; test ! -e f
			python3 - <<'END'
import os
f = open("g", "w+"); f.write("one"); f.flush(); os.unlink("g")
f.write("two"); f.flush(); os.ftruncate(f.fileno(), 5); f.seek(0)
assert f.read() == "onetw" and os.fstat(f.fileno()).st_size == 5
END`},
		{"s3fs#1776", `
			# The size is there at once, and the zeros are nobody's.
			dd of=f bs=1M count=0 seek=100000 status=none
			test "$(stat -c %s f)" = 104857600000
			truncate -s 3M f; printf end | dd of=f bs=1 seek=3145725 conv=notrunc status=none
			test "$(tail -c 3 f)" = end`},
		{"libfuse#191", `
			echo a > log; for i in $(seq 100); do echo $i >> log; done; test "$(wc -l < log)" = 101`},
		{"curvine#1105", `
			random 3M > $T/src; dd if=$T/src of=f bs=1M count=3 conv=fsync status=none; cmp f $T/src`},
		{"libfuse#1125", opens},
	}
}

// writers has three processes write to one database, as a rollback journal and as
// a write-ahead log.
const writers = `
for mode in delete wal; do
	sqlite3 $mode.db "pragma journal_mode=$mode; create table t(w, n)" > /dev/null
	for w in 1 2 3; do
		python3 - $mode.db $w %d <<'END' &
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for n in range(int(sys.argv[3])):
    db.execute("begin immediate"); db.execute("insert into t values (?, ?)", (sys.argv[2], n)); db.execute("commit")
db.close()
END
	done
	for job in $(jobs -p); do wait $job; done
	test "$(sqlite3 $mode.db 'select count(*), count(distinct w) from t')" = "$((3 * %[1]d))|3"
	test "$(sqlite3 $mode.db 'pragma integrity_check')" = ok
done`

// opens has one file open in two ways at a time, in both orders, and mapped.
const opens = `
python3 - <<'END'
import mmap, os
def have(fd, want):
    got = os.pread(fd, 100, 0)
    assert got == want, got
for first, second in ((os.O_WRONLY, os.O_RDONLY), (os.O_RDONLY, os.O_WRONLY), (os.O_RDWR, os.O_WRONLY | os.O_APPEND), (os.O_RDONLY, os.O_RDWR | os.O_TRUNC)):
    with open("f", "w") as f: f.write("0123456789")
    a = os.open("f", first); b = os.open("f", second)
    size = os.fstat(b).st_size
    writer = b if second & os.O_ACCMODE != os.O_RDONLY else a
    reader = a if writer is b else b
    assert os.write(writer, b"xy") == 2
    m = os.open("f", os.O_RDWR); mapped = mmap.mmap(m, 0); os.close(m)
    mapped[0:1] = b"M"; mapped.flush()
    c = os.open("f", os.O_RDONLY)
    have(c, mapped[:]); assert mapped[0:1] == b"M"
    if reader is a and first != os.O_WRONLY or reader is b: have(reader, mapped[:])
    for fd in (a, b, c): os.close(fd)
    mapped.close()
END`
