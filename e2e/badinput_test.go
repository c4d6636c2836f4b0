package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestBadInput sends what no honest caller sends. After each group the same
// berth still serves an ordinary call: nothing else is disturbed.
func TestBadInput(t *testing.T) {
	b := start(t)
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{}).want(t, 200, nil)
	groups := map[string]func(*testing.T, *berth){
		"Ids": badIDs, "Bodies": badBodies, "Tokens": badTokens, "OtherWorkspace": otherWorkspace, "Paths": badPaths,
		"Files": strangeFiles, "Truncated": truncatedFile, "Output": strangeOutput, "Machine": hostileMachine, "Replaced": replacedPlaces,
	}
	for name, group := range groups {
		t.Run(name, func(t *testing.T) {
			group(t, b)
			equal(t, "an ordinary call after it", b.sh(t, b.Member, "c", "echo fine"), "fine")
		})
	}
}

func badIDs(t *testing.T, b *berth) {
	ids := map[string]string{
		"slash": "a%2Fb", "dots": "%2E%2E", "leading dot": ".a", "nul": "a%00b",
		"129 characters": strings.Repeat("a", 129), "emoji": url.PathEscape("🙂"),
	}
	for name, id := range ids {
		b.call(t, b.Member, "PUT", "/v1/chats/"+id, "{}").refused(t, 400, "chat")
		b.call(t, b.Operator, "PUT", "/v1/workspaces/"+id, "{}").refused(t, 400, "workspace")
		b.call(t, b.Admin, "PUT", "/v1/members/"+id, "{}").refused(t, 400)
		raw, err := url.PathUnescape(id)
		if err != nil {
			t.Fatal(name, err)
		}
		b.call(t, b.APIKey, "PUT", "/v1/chats/k", map[string]any{"end_user": raw}).refused(t, 400, "end user")
		b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": "true", "expert": raw}).refused(t, 400, "expert")
	}
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": "true", "expert": "shared"}).refused(t, 400, "shared")
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/nonsense", "{}").refused(t, 404, "nonsense", "bash")
}

func badBodies(t *testing.T, b *berth) {
	const bash = "/v1/chats/c/tools/bash"
	for _, body := range []string{"", "{", "[]", "null", `"x"`, `{"command":1}`, `{"command":"true"}{"command":"false"}`} {
		b.call(t, b.Member, "POST", bash, body).refused(t, 400)
	}
	b.call(t, b.Member, "POST", bash, `{"command":"true","timeout_ms":-1}`).refused(t, 400, "timeout_ms")
	b.call(t, b.Member, "POST", bash, `{"command":"a\u0000b"}`).refused(t, 400, "command")

	// A 1 GiB body is refused without being read to its end.
	req, err := http.NewRequest("POST", b.URL+bash, io.LimitReader(zeros{}, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1 << 30
	req.Header.Set("Authorization", "Bearer "+b.Member)
	req.Header.Set("Expect", "100-continue")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("1 GiB body: %v", err)
	}
	defer res.Body.Close()
	equal(t, "status of a 1 GiB body", res.StatusCode, http.StatusRequestEntityTooLarge)
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func badTokens(t *testing.T, b *berth) {
	for _, token := range []string{"", "nonsense", b.Member + "x", strings.Repeat("a", 10000)} {
		b.call(t, token, "GET", "/v1/chats/c", nil).refused(t, 401)
	}
	b.call(t, b.Member, "PUT", "/v1/members/mallory", "{}").refused(t, 403)
	b.call(t, b.APIKey, "GET", "/v1/chats/c", nil).refused(t, 404)
	b.call(t, b.APIKey, "GET", "/v1/files/me/", nil).refused(t, 403)
	eve := b.member(t, b.Admin, "eve")
	b.call(t, eve, "GET", "/v1/chats/c", nil).refused(t, 404, "c")
	b.call(t, eve, "POST", "/v1/chats/c/machine/stop", nil).refused(t, 404)
	b.call(t, b.Admin, "DELETE", "/v1/members/eve", nil).want(t, 204, nil)
	b.call(t, eve, "GET", "/v1/me", nil).refused(t, 401)
}

// otherWorkspace has an admin and a member of a second workspace ask for what is
// the first one's. The member has the same name, to be met by mistake.
func otherWorkspace(t *testing.T, b *berth) {
	admin := b.workspace(t, "elsewhere")
	stranger := b.member(t, admin, b.User)
	b.call(t, b.Member, "PUT", "/v1/files/me/private", "of "+b.Workspace).want(t, 201, nil)
	b.call(t, b.Member, "PUT", "/v1/files/shared/team", "of "+b.Workspace).want(t, 201, nil)
	tree := "?path=private&tree=" + b.Workspace + "/members/" + b.User
	for _, r := range []struct{ method, path, body, word string }{
		{"GET", "/v1/chats/c", "", "c"}, {"DELETE", "/v1/chats/c", "", "c"}, {"GET", "/v1/chats/c/events", "", "c"},
		{"POST", "/v1/chats/c/tools/bash", `{"command":"true"}`, "c"}, {"POST", "/v1/chats/c/machine/stop", "", "c"},
		{"POST", "/v1/chats/c/machine/wake", "", "c"}, {"DELETE", "/v1/chats/c/machine", "", "c"},
		{"GET", "/v1/files/chats/c/", "", "c"}, {"PUT", "/v1/files/chats/c/x", "x", "c"}, {"GET", "/v1/diff" + tree, "", "tree"},
		{"GET", "/v1/files/me/private", "", "private"}, {"DELETE", "/v1/files/me/private", "", "private"},
		{"POST", "/v1/files/me/private?move_to=x", "", "private"}, {"GET", "/v1/files/shared/team", "", "team"},
	} {
		b.call(t, stranger, r.method, r.path, r.body).refused(t, 404, r.word)
	}
	b.member(t, b.Admin, "carol")
	b.call(t, admin, "DELETE", "/v1/members/carol", nil).refused(t, 404, "carol")
	var made struct{ ID, Key string }
	b.call(t, b.Admin, "POST", "/v1/keys", "{}").want(t, 201, &made)
	b.call(t, admin, "DELETE", "/v1/keys/"+made.ID, nil).refused(t, 404, made.ID)
	for _, list := range []string{"/v1/members", "/v1/keys"} {
		text := string(b.call(t, admin, "GET", list, nil).Body)
		if strings.Contains(text, "carol") || strings.Contains(text, made.ID) {
			t.Errorf("GET %s tells of another workspace: %s", list, text)
		}
	}
	equal(t, "the member's file", string(b.call(t, b.Member, "GET", "/v1/files/me/private", nil).Body), "of "+b.Workspace)
}

func badPaths(t *testing.T, b *berth) {
	b.sh(t, b.Member, "c", "mkdir -p /home/user/workspace/d && ln -sfn /etc /home/user/workspace/d/out && ln -sfn ../../../../../../etc/passwd /home/user/workspace/d/up")
	for _, path := range []string{"d/out/passwd", "d/up", "d/../../x", "..%2F..%2Fetc%2Fpasswd", "d/%2e%2e/%2e%2e/x"} {
		a := b.call(t, b.Member, "GET", "/v1/files/me/"+path, nil)
		if a.Status != 400 && a.Status != 403 && a.Status != 404 || strings.Contains(string(a.Body), "root:") {
			t.Errorf("GET %s: status %d, %.200s", path, a.Status, a.Body)
		}
		a = b.call(t, b.Member, "PUT", "/v1/files/me/"+path, "overwritten")
		if a.Status/100 == 2 {
			t.Errorf("PUT %s is accepted", path)
		}
	}
	if text, err := os.ReadFile("/etc/passwd"); err != nil || strings.Contains(string(text), "overwritten") {
		t.Fatalf("the host's /etc/passwd was reached: %v", err)
	}
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/read_file", map[string]any{"path": "../../../nowhere/x"}).refused(t, 404, "nowhere")
}

func strangeFiles(t *testing.T, b *berth) {
	said := b.sh(t, b.Member, "c", `cd /home/user/workspace && mkdir -p s && cd s && mkfifo fifo &&
		python3 - <<'PY'
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("sock")
open(b"new\nline", "w").write("nl")
try: open(b"bad\xffname", "w").write("x")
except OSError as e: print(e.errno)
f = os.open("sparse", os.O_CREAT | os.O_RDWR)
for size in ((1 << 63) - 1, 1 << 40):
    try: os.truncate(f, size); print("a file of", size, "bytes")
    except OSError as e: assert e.errno == 27, e
os.truncate(f, 1 << 34)
os.mkdir("many")
for i in range(3000): open("many/%05d" % i, "w")
PY`)
	equal(t, "errno of a name that is not UTF-8, and files too large", said, "84")
	for _, name := range []string{"fifo", "sock"} {
		b.call(t, b.Member, "GET", "/v1/files/me/s/"+name, nil).refused(t, 415, name)
	}
	equal(t, "name with a newline", string(b.call(t, b.Member, "GET", "/v1/files/me/s/new%0Aline", nil).Body), "nl")
	req, err := http.NewRequest("GET", b.URL+"/v1/files/me/s/sparse", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.Member)
	req.Header.Set("Range", "bytes=8589934592-8589934595")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 206 || string(text) != "\x00\x00\x00\x00" {
		t.Errorf("range of a sparse file: %d %q %v", res.StatusCode, text, err)
	}
	b.sh(t, b.Member, "c", "rm /home/user/workspace/s/sparse")
	var names []string
	for after := ""; ; {
		var page struct {
			Entries []struct{ Name string }
			Next    string
		}
		b.call(t, b.Member, "GET", "/v1/files/me/s/many/?list=1&limit=1000&after="+url.QueryEscape(after), nil).want(t, 200, &page)
		for _, e := range page.Entries {
			names = append(names, e.Name)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(names) != 3000 || names[0] != "00000" || names[2999] != "02999" {
		t.Errorf("the listing has %d names", len(names))
	}
}

// truncatedFile cuts a file in the machine while a client takes it.
func truncatedFile(t *testing.T, b *berth) {
	const size = 64 << 20
	b.sh(t, b.Member, "c", fmt.Sprintf("truncate -s %d /home/user/workspace/cut", size))
	req, err := http.NewRequest("GET", b.URL+"/v1/files/me/cut", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.Member)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<10); err != nil {
		t.Fatal(err)
	}
	b.sh(t, b.Member, "c", ": > /home/user/workspace/cut")
	if n, err := io.Copy(io.Discard, res.Body); err == nil || n >= size-1<<10 {
		t.Errorf("the client got %d bytes more and %v, want a body that is cut short", n, err)
	}
	equal(t, "the file after it", string(b.call(t, b.Member, "GET", "/v1/files/me/cut", nil).Body), "")
}

func strangeOutput(t *testing.T, b *berth) {
	var r struct {
		bashResult
		StdoutBase64 string `json:"stdout_base64"`
	}
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": `printf 'a\xff\x00b'`}).want(t, 200, &r)
	equal(t, "bytes that are no text", r.StdoutBase64, "Yf8AYg==")

	begin := time.Now()
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": "setsid sleep 1000 & sleep 1000", "timeout_ms": 500}).want(t, 200, &r)
	if r.Reason != "timeout" || time.Since(begin) > 10*time.Second {
		t.Errorf("a command that never ends: %q after %v", r.Reason, time.Since(begin))
	}
	if left := b.bash(t, b.Member, "c", "pgrep -c sleep").Stdout; strings.TrimSpace(left) != "0" {
		t.Errorf("%s processes are left of it", left)
	}
	big := b.bash(t, b.Member, "c", "head -c 1073741824 /dev/zero | tr '\\0' 'x'; echo end")
	if !big.Truncated || big.ExitCode != 0 || len(big.Stdout) > 2<<20 || !strings.HasSuffix(big.Stdout, "end\n") {
		t.Errorf("1 GiB of output: truncated %v, exit %d, %d bytes", big.Truncated, big.ExitCode, len(big.Stdout))
	}
}

// hostileMachine tries from inside to reach what a machine must not.
func hostileMachine(t *testing.T, b *berth) {
	probes := map[string]string{ // command -> what it must not print
		"id -u":                    "0\n",
		"ls /sys/class/net":        "eth0",
		"cat /proc/1/environ 2>&1": "TOKEN",
		"touch /x /usr/x /run/berth/x && echo wrote":           "wrote",
		"ls /run/docker.sock /var/run/docker.sock 2>/dev/null": "docker.sock",
		"mount -t tmpfs x /mnt && echo mounted":                "mounted",
		"unshare -r true && echo unshared":                     "unshared",
		"find / -perm -4000 -type f 2>/dev/null":               "/",
		"rm -rf /run/berth/* && echo removed; ls /run/berth":   "removed\n\n",
	}
	for command, wrong := range probes {
		if r := b.bash(t, b.Member, "c", command); strings.Contains(r.Stdout, wrong) && (wrong != "0\n" || r.Stdout == wrong) {
			t.Errorf("%s printed %q", command, r.Stdout)
		}
	}
	for _, family := range []int{40, 17, 16 + 22} { // VSOCK, PACKET, ALG
		r := b.bash(t, b.Member, "c", fmt.Sprintf("python3 -c 'import socket; socket.socket(%d, socket.SOCK_STREAM)'", family))
		if r.ExitCode == 0 {
			t.Errorf("a socket of family %d can be made in a machine", family)
		}
	}
	// Floods: processes, files in /tmp, memory. Each is the machine's own affair.
	b.bash(t, b.Member, "c", "for i in $(seq 2000); do sleep 5 & done 2>/dev/null; true")
	b.bash(t, b.Member, "c", "head -c 100G /dev/zero > /tmp/flood; rm -f /tmp/flood")
	r := b.bash(t, b.Member, "c", `python3 -c 'x = bytearray(8 << 30)'`)
	if r.ExitCode == 0 {
		t.Error("8 GiB can be allocated in a machine of 2 GiB")
	}
	// Every file of the workspace replaced by a link to the host's files.
	b.sh(t, b.Member, "c", "cd /home/user/workspace && mkdir -p h && for f in a b c; do ln -sf /etc/shadow h/$f; done")
	for _, name := range []string{"a", "b", "c"} {
		a := b.call(t, b.Member, "GET", "/v1/files/me/h/"+name, nil)
		if a.Status/100 == 2 || strings.Contains(string(a.Body), "root:") {
			t.Errorf("a link to /etc/shadow is followed: %d", a.Status)
		}
	}
}

// replacedPlaces has a machine put other things where berth looks for its own,
// and a colleague's machine go on. What was replaced can be put back from outside.
func replacedPlaces(t *testing.T, b *berth) {
	colleague := b.member(t, b.Admin, "dave")
	for _, token := range []string{b.Member, colleague} {
		b.call(t, token, "PUT", "/v1/chats/r", "{}").want(t, 200, nil)
		b.sh(t, token, "r", "echo here > f")
	}
	for name, command := range map[string]string{
		"a link to the host's files": "rm -rf profy/r && ln -s /etc profy/r",
		"a link to nothing":          "rm -rf profy/r && ln -s /nowhere profy/r",
		"a link to itself":           "rm -rf profy/r && ln -s r profy/r",
		"a file":                     "rm -rf profy/r && echo x > profy/r",
		"a fifo":                     "rm -rf profy/r && mkfifo profy/r",
		"a closed directory":         "rm -rf profy/r && mkdir -m 0 profy/r",
		"start files":                "for f in .bashrc .profile .bash_profile .bash_logout; do echo 'exec sleep 1000' > ~/$f; done",
	} {
		b.sh(t, b.Member, "r", "cd /home/user/workspace && "+command)
		a := b.call(t, b.Member, "POST", "/v1/chats/r/tools/bash", map[string]any{"command": "pwd", "timeout_ms": 5000})
		if a.Status != 200 {
			a.refused(t, a.Status, "/home/user")
		}
		if a.Status >= 500 || strings.Contains(string(a.Body), "timeout") {
			t.Errorf("%s: status %d: %.300s", name, a.Status, a.Body)
		}
		if a := b.call(t, b.Member, "GET", "/v1/files/chats/r/passwd", nil); a.Status/100 == 2 || strings.Contains(string(a.Body), "root:") {
			t.Errorf("%s: the host's files are reached: %d %.200s", name, a.Status, a.Body)
		}
		equal(t, "the colleague's machine beside "+name, b.sh(t, colleague, "r", "cat f"), "here")
		b.call(t, b.Member, "DELETE", "/v1/files/me/profy/r?recursive=1", nil)
		b.sh(t, b.Member, "r", "rm -f ~/.bashrc ~/.profile ~/.bash_profile ~/.bash_logout")
	}
	// A home that nobody may enter ends with its machine.
	b.sh(t, b.Member, "r", "chmod 0 ~")
	b.call(t, b.Member, "POST", "/v1/chats/r/tools/bash", `{"command":"pwd"}`).refused(t, 403, "/home/user")
	b.call(t, b.Member, "DELETE", "/v1/chats/r/machine", nil).want(t, 200, nil)
	b.call(t, b.Member, "POST", "/v1/chats/r/machine/wake", nil).want(t, 200, nil)
	equal(t, "the next machine", b.sh(t, b.Member, "r", "pwd"), "/home/user/workspace/profy/r")
}

// TestStrangers has the CLI meet a gateway that is not there and a wrong token.
func TestStrangers(t *testing.T) {
	cmd := exec.Command(program(t), "tool", "c", "bash", "command=true")
	cmd.Env = append(os.Environ(), "BERTH_URL=http://127.0.0.1:1", "BERTH_TOKEN=x")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "127.0.0.1:1") {
		t.Errorf("berth tool without a gateway: %v, %s", err, out)
	}
	cmd = exec.Command(program(t), "tool", "c", "bash")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err = cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "BERTH_URL") {
		t.Errorf("berth tool without BERTH_URL: %v, %s", err, out)
	}
}
