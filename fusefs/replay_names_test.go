package fusefs

import "fmt"

// nameReplays are of directories and of names that other file systems mangle.
func nameReplays() []replay {
	return []replay{
		{"juicefs#332", fmt.Sprintf(`
			python3 - <<'END'
import os
for i in range(%d):
    d = "mod/m%%d/v%%d" %% (i %% 40, i %% 7)
    os.makedirs(d, exist_ok=True)
    open(d + "/%%d.go" %% i, "w").close()
END
			for i in 1 2 3 4; do rm -rf mod & done; wait; test ! -e mod`, sized(800, 50000))},
		{"goofys#319", `
			python3 - <<'END'
import os, shutil
names = ["x%cy" % c for c in range(0x01, 0x7f) if c != 0x2f] + [" lead", "trail ", "a+b", "100%", "%2F", "%252F", "#1", "a&b=c", "..x", "x..", "\r", "tab\t", "\ufffe", "q?", "é", "😀", "*", "[a]", "-rf", "a\\b"]
os.makedirs("d+ #%/e")
for n in names:
    for d in (".", "d+ #%/e"):
        with open(d + "/" + n, "w") as f: f.write(n)
for d in (".", "d+ #%/e"):
    assert set(names) <= set(os.listdir(d)), set(names) - set(os.listdir(d))
for n in names:
    os.rename(n, n + "+ %#@!"); assert open(n + "+ %#@!", newline="").read() == n
os.rename("d+ #%", "moved & d")
shutil.rmtree("moved & d")
END`},
		{"aws-cli#1639", `
			python3 - <<'END'
import os, unicodedata
nfc, nfd = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")
for n in (nfc, nfd, "CAFÉ"):
    with open(n, "w") as f: f.write(n)
assert sorted(os.listdir(".")) == sorted([nfc, nfd, "CAFÉ"])
assert open(nfc).read() == nfc and open(nfd).read() == nfd
END`},
	}
}
