package e2e

import (
	"strings"
	"testing"
)

// TestViewsAreApart has machines look for what is another's: a member's, a
// chat's, an end user's, a workspace's. Each owner has a file that begins with
// "secret-".
func TestViewsAreApart(t *testing.T) {
	b := start(t)
	bob := b.member(t, b.Admin, "bob")
	eve := b.member(t, b.workspace(t, "elsewhere"), "eve")
	for chat, token := range map[string]string{"c1": b.Member, "c2": b.Member, "c-bob": bob} {
		b.call(t, token, "PUT", "/v1/chats/"+chat, "{}").want(t, 200, nil)
	}
	b.call(t, b.APIKey, "PUT", "/v1/chats/k", map[string]any{"end_user": "uwe"}).want(t, 200, nil)
	b.sh(t, b.Member, "c2", "echo x > ~/secret-home-of-c2; echo x > /tmp/secret-tmp-of-c2; echo team > /home/user/workspace/shared/team")
	b.sh(t, bob, "c-bob", "echo x > /home/user/workspace/secret-of-bob; echo x > ~/secret-home-of-bob")
	b.sh(t, b.APIKey, "k", "echo x > secret-of-uwe")
	b.call(t, eve, "PUT", "/v1/files/me/secret-of-eve", "x").want(t, 201, nil)
	b.call(t, eve, "PUT", "/v1/files/shared/secret-of-elsewhere", "x").want(t, 201, nil)

	script := strings.NewReplacer("STATE", b.State, "WS", b.Workspace).Replace(tricks)
	equal(t, "what a member's machine reaches", b.sh(t, b.Member, "c1", script), "tried all")
	walk := "find / -path /proc -prune -o -name 'secret-*' -print 2>/dev/null; ls /home/user/workspace; grep -cE 'bob|eve|members|elsewhere' /proc/self/mountinfo"
	r := b.bash(t, b.APIKey, "k", walk)
	equal(t, "what a key's machine reaches", r.Stdout, "/home/user/workspace/profy/k/secret-of-uwe\nprofy\n0\n")
	for name, token := range map[string]string{"of-bob": bob, "of-eve": eve} {
		if a := b.call(t, token, "GET", "/v1/files/me/secret-"+name, nil); a.Status != 200 || string(a.Body[:1]) != "x" {
			t.Errorf("secret-%s afterwards: %d %s", name, a.Status, a.Body)
		}
	}
}

// tricks is run in a machine; it prints what it reaches, then "tried all".
const tricks = `python3 - <<'PY'
import ctypes, errno, os
W = "/home/user/workspace"
os.chdir(W)
open("mine", "w").write("x")

def refused(what, do, *wanted):
    try:
        got = do()
    except OSError as e:
        if errno.errorcode[e.errno] not in wanted: print(what, "ends with", errno.errorcode[e.errno])
    else:
        print(what, "is possible:", got)

# By walking: nothing is listed.
for top, dirs, names in os.walk("/"):
    if top == "/": dirs.remove("proc")
    for n in dirs + names:
        if n.startswith("secret-"): print("found", top, n)

# By name, .. and symbolic links, in the words of the bucket and of the host.
for i, to in enumerate([
    "../bob/secret-of-bob", "../../members/bob/secret-of-bob", "../members/bob", "shared/../../members/bob", "/WS/members/bob",
    "../../../elsewhere/members/eve/secret-of-eve", "../../end_users/uwe/session-roots/k/secret-of-uwe", "../../machines", "../../../.berth",
    "STATE", "STATE/fs/WS/members/bob/secret-of-bob", "STATE/view/WS/members/bob", "STATE/store", "/proc/self/root/STATE",
]):
    refused("the path " + to, lambda: os.stat(to), "ENOENT")
    refused("the list of " + to, lambda: os.listdir(to), "ENOENT")
    os.symlink(to, "link%d" % i)
    refused("a link to " + to, lambda: os.stat("link%d" % i), "ENOENT")
    refused("writing through a link to " + to, lambda: open("link%d" % i, "w"), "ENOENT", "EROFS", "EACCES", "EISDIR")
    os.unlink("link%d" % i)
    refused("making " + to, lambda: os.mkdir(to), "ENOENT", "EROFS", "EACCES")

# Upwards by descriptors, from each mount.
for start in (W, W + "/shared", W + "/profy/c1", "/home/user/project", "/home/user"):
    fd = os.open(start, os.O_DIRECTORY)
    for _ in range(10):
        fd = os.open("..", os.O_DIRECTORY, dir_fd=fd)
        for n in os.listdir(fd):
            if n in ("bob", "members", "elsewhere", "machines", "end_users", "WS"): print("above", start, "is", n)

# By hard links and renames between trees.
for to in (W + "/shared/mine", "/home/user/mine", "/tmp/mine", "/run/berth/mine"):
    refused("a hard link to " + to, lambda: os.link("mine", to), "EXDEV", "EROFS")
    refused("a rename to " + to, lambda: os.rename("mine", to), "EXDEV", "EROFS")
refused("a hard link out of shared", lambda: os.link("shared/team", "team"), "EXDEV")
for name in ("shared", "/home/user/workspace", "/home/user/project"):
    refused("renaming " + name, lambda: os.rename(name, name + "2"), "EBUSY", "EXDEV", "EROFS")
    refused("removing " + name, lambda: os.rmdir(name), "EBUSY", "EROFS")
    refused("a link in place of " + name, lambda: os.symlink("/", name), "EEXIST")

# By /proc: only this machine's processes, and nobody's names.
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for link in ("root", "cwd"):
            try: to = os.readlink("/proc/%s/%s" % (pid, link))
            except OSError: continue
            if to.startswith("STATE"): print(pid, link, to)
        try: line = open("/proc/%s/cmdline" % pid, "rb").read()
        except OSError: continue
        if line.split(b"\0")[1:2] in ([b"mountd"], [b"sandboxd"], [b"gateway"], [b"store"]): print("the host's process", pid, line)
said = open("/proc/self/mountinfo").read()
for word in ("bob", "eve", "elsewhere", "uwe", "end_users"):
    if word in said: print("mountinfo tells of", word)

# By mounts, name spaces and file handles.
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*[a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]) < 0:
        raise OSError(ctypes.get_errno(), "")
os.makedirs("/tmp/m", exist_ok=True)
refused("a bind mount", lambda: call(165, b"/", b"/tmp/m", 0, 0x1000, 0), "EPERM")
refused("a mount of FUSE", lambda: call(165, b"x", b"/tmp/m", b"fuse", 0, b"fd=0"), "EPERM")
refused("an unmount", lambda: call(166, b"/home/user/workspace/shared", 2), "EPERM")
refused("an open tree", lambda: call(428, -100, b"/", 1), "EPERM")
refused("a name space", lambda: call(272, 0x10020000), "EPERM")
refused("init's name spaces", lambda: call(308, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0), "EPERM", "EACCES")
handle = ctypes.create_string_buffer(b"\x08\0\0\0\x81\0\0\0" + b"\1\0\0\0\0\0\0\0" + bytes(64))
refused("a file handle", lambda: call(304, os.open(W, os.O_RDONLY), ctypes.addressof(handle), 0), "EPERM")
os.unlink("mine")
print("tried all")
PY`
