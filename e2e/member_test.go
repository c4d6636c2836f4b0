package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMember is the story of a member: an agent works in two of the member's
// chats while the member watches in the browser, and a colleague works beside.
func TestMember(t *testing.T) {
	b := start(t)
	const hello = "profy/c1/hello.py"

	page := openBrowser(t)
	signIn(t, b, page)

	// Chat 1: no machine before the first call, one after it.
	b.call(t, b.Member, "PUT", "/v1/chats/c1", map[string]any{"title": "First"}).want(t, 200, nil)
	equal(t, "machine before the first call", b.machine(t, b.Member, "c1"), "waiting")
	out := b.sh(t, b.Member, "c1", `printf 'print("one")\n' > hello.py && python3 hello.py`)
	equal(t, "output", out, "one")
	equal(t, "machine after the first call", b.machine(t, b.Member, "c1"), "running")

	// The page shows the file without a reload, the bucket has it as a plain object.
	page.do("waitRole", args{"role": "link", "name": `Added hello\.py`})
	page.shot("change")
	b.flush(t)
	bucket := b.bucket(t)
	key := fmt.Sprintf("%s/members/%s/%s", b.Workspace, b.User, hello)
	content, _ := bucket.object(t, key)
	equal(t, "object "+key, content, "print(\"one\")\n")

	// A second edit, and its diff. The link to the change names the call.
	edit := b.call(t, b.Member, "POST", "/v1/chats/c1/tools/bash", map[string]any{"command": `printf 'print("two")\n' > hello.py`})
	edit.want(t, 200, nil)
	page.do("clickSelector", args{"selector": fmt.Sprintf("a[href*='hello.py'][href*='call=%s']", edit.Header.Get("Berth-Call"))})
	page.do("waitSelector", args{"selector": "[role=table][aria-label=Diff]"})
	page.do("wait", args{"text": `print("two")`})
	page.do("wait", args{"text": `print("one")`})
	page.shot("diff")
	for _, width := range []int{375, 1280} {
		page.do("size", args{"width": width, "height": 800})
		if over := page.do("overflow", nil).Overflow; over > 0 {
			t.Errorf("at %d px the page is %d px too wide", width, over)
		}
	}
	if problems := page.do("problems", nil).Problems; len(problems) != 0 {
		t.Errorf("the page reported errors: %q", problems)
	}

	// Chat 2 has another machine and sees the file at once.
	b.call(t, b.Member, "PUT", "/v1/chats/c2", map[string]any{}).want(t, 200, nil)
	equal(t, "the file in chat 2", b.sh(t, b.Member, "c2", "cat ../c1/hello.py"), `print("two")`)
	if one, two := b.sh(t, b.Member, "c1", "echo x > /tmp/here; ls /tmp"), b.sh(t, b.Member, "c2", "ls /tmp"); one == two {
		t.Errorf("both chats see /tmp with %q: they share a machine", two)
	}
	colleague(t, b, hello)
	lastWriteStays(t, b, bucket)
	sleepAndWake(t, b)
	toolsOfTheTrade(t, b, bucket)
	stopAndDestroy(t, b, page)
}

// signIn opens the sign-in link in the page and checks the cookie.
func signIn(t *testing.T, b *berth, page *browser) {
	t.Helper()
	link, err := exec.Command(program(t), "signin", "--state", b.State).Output()
	if err != nil {
		t.Fatalf("berth signin: %v", err)
	}
	url := strings.TrimSpace(string(link))
	opened := page.do("open", args{"url": url})
	if opened.Status != 200 || strings.Contains(opened.URL, "t=") {
		t.Errorf("the sign-in link led to %s with status %d, want a clean URL and 200", opened.URL, opened.Status)
	}
	cookies := page.do("cookies", nil).Cookies
	if len(cookies) != 1 || !cookies[0].HTTPOnly || !strings.HasPrefix(cookies[0].Name, "__Host-") {
		t.Errorf("cookies = %+v, want one HttpOnly cookie named __Host-...", cookies)
	}
	second, err := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url).Output()
	if err != nil || string(second) == "303" {
		t.Errorf("the link was accepted a second time: %s, %v", second, err)
	}
	page.do("waitSelector", args{"selector": "[role=tree]"})
}

// colleague is another member of the workspace: shares shared/ and nothing else.
func colleague(t *testing.T, b *berth, hello string) {
	t.Helper()
	var made struct{ Token string }
	b.call(t, b.Admin, "PUT", "/v1/members/bob", map[string]any{}).want(t, 200, &made)
	b.call(t, made.Token, "PUT", "/v1/chats/c1", map[string]any{}).want(t, 200, nil)
	if r := b.bash(t, made.Token, "c1", "find / -name hello.py 2>/dev/null"); strings.Contains(r.Stdout, "hello.py") {
		t.Errorf("another member's machine finds %q", r.Stdout)
	}
	b.call(t, made.Token, "GET", "/v1/files/me/"+hello, nil).refused(t, 404, "hello.py")
	b.sh(t, b.Member, "c1", "echo team > /home/user/workspace/shared/note")
	equal(t, "shared/note for the other member", b.sh(t, made.Token, "c1", "cat /home/user/workspace/shared/note"), "team")
	b.sh(t, made.Token, "c1", "echo back >> /home/user/workspace/shared/note")
	equal(t, "shared/note", b.sh(t, b.Member, "c1", "cat /home/user/workspace/shared/note"), "team\nback")
}

// lastWriteStays has both chats write one file in turn.
func lastWriteStays(t *testing.T, b *berth, bucket bucket) {
	t.Helper()
	for i := range 6 {
		chat := []string{"c1", "c2"}[i%2]
		b.sh(t, b.Member, chat, fmt.Sprintf("echo %s-%d > /home/user/workspace/both", chat, i))
	}
	for _, chat := range []string{"c1", "c2"} {
		equal(t, "both in "+chat, b.sh(t, b.Member, chat, "cat /home/user/workspace/both"), "c2-5")
	}
	b.flush(t)
	content, _ := bucket.object(t, fmt.Sprintf("%s/members/%s/both", b.Workspace, b.User))
	equal(t, "object both", content, "c2-5\n")
	equal(t, "both over HTTP", string(b.call(t, b.Member, "GET", "/v1/files/me/both", nil).Body), "c2-5\n")
}

func sleepAndWake(t *testing.T, b *berth) {
	t.Helper()
	b.sh(t, b.Member, "c1", "echo kept > ~/in-home && mkdir -p ~/.config && echo deep > ~/.config/f")
	b.call(t, b.Member, "POST", "/v1/chats/c1/machine/stop", nil).want(t, 200, nil)
	equal(t, "machine after stop", b.machine(t, b.Member, "c1"), "sleeping")
	equal(t, "files after waking", b.sh(t, b.Member, "c1", "cat hello.py ~/in-home ~/.config/f"), "print(\"two\")\nkept\ndeep")
	equal(t, "machine after waking", b.machine(t, b.Member, "c1"), "running")
}

// toolsOfTheTrade runs git, npm and SQLite in the workspace.
func toolsOfTheTrade(t *testing.T, b *berth, bucket bucket) {
	t.Helper()
	b.sh(t, b.Member, "c1", `set -e
		git init -q repo && cd repo && git config user.email a@b.c && git config user.name n
		echo 1 > f && git add f && git commit -qm one
		git branch a && git branch -d a && git branch a/b && git checkout -q a/b
		echo 2 > f && git commit -qam two && git fsck`)
	b.sh(t, b.Member, "c1", `set -e
		mkdir -p pkg/package app && cd pkg
		echo '{"name":"tiny","version":"1.0.0","main":"i.js","bin":{"tiny":"i.js"}}' > package/package.json
		printf '#!/usr/bin/env node\nconsole.log("tiny")\n' > package/i.js
		tar czf tiny.tgz package && cd ../app && echo '{}' > package.json
		npm install --offline --no-audit --no-fund ../pkg/tiny.tgz && node_modules/.bin/tiny | grep tiny`)
	b.sh(t, b.Member, "c1", `python3 - <<'PY'
import sqlite3
for mode in ("delete", "wal"):
    db = sqlite3.connect("t.db")
    db.execute("pragma journal_mode=" + mode)
    db.execute("create table if not exists t (x)")
    with db: db.execute("insert into t values (?)", (mode,))
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()
assert sqlite3.connect("t.db").execute("select count(*) from t").fetchone() == (2,)
PY`)
	b.flush(t)
	base := fmt.Sprintf("%s/members/%s/profy/c1/", b.Workspace, b.User)
	for _, name := range []string{"repo/.git/refs/heads/a/b", "repo/f", "app/node_modules/tiny/i.js", "app/package-lock.json", "t.db"} {
		if _, ok := bucket.object(t, base+name); !ok {
			t.Errorf("the bucket has no %s", base+name)
		}
	}
	if _, ok := bucket.object(t, base+"repo/.git/refs/heads/a"); ok {
		t.Errorf("the bucket still has the deleted branch a")
	}
	eventually(t, "the page's list of chat files holds t.db", 10*time.Second, func() bool {
		return strings.Contains(string(b.call(t, b.Member, "GET", "/v1/files/me/profy/c1/?list=1", nil).Body), "t.db")
	})
}

// stopAndDestroy ends the machine of chat 1 from the page: first it sleeps, then
// its home is gone, and the disk stays.
func stopAndDestroy(t *testing.T, b *berth, page *browser) {
	t.Helper()
	const card = "[aria-label^='Chat First'] "
	page.do("clickSelector", args{"selector": card + "button:has-text('Stop')"})
	eventually(t, "the machine sleeps", 60*time.Second, func() bool { return b.machine(t, b.Member, "c1") == "sleeping" })
	page.do("waitSelector", args{"selector": card + "button:has-text('Wake')"})
	page.do("clickSelector", args{"selector": card + "button:has-text('Destroy')"})
	page.do("waitSelector", args{"selector": "dialog button[type=submit]:disabled"})
	page.shot("destroy")
	page.do("fill", args{"selector": "dialog input", "text": "destroy"})
	page.do("clickSelector", args{"selector": "dialog button[type=submit]"})
	page.do("waitSelector", args{"selector": "body:not(:has(dialog))"})
	eventually(t, "the machine is gone", 60*time.Second, func() bool {
		state := b.machine(t, b.Member, "c1")
		return state == "terminated" || state == "waiting"
	})
	equal(t, "after destroying", b.sh(t, b.Member, "c1", "cat hello.py; ls -A ~ | grep -c in-home || true"), "print(\"two\")\n0")
	if problems := page.do("problems", nil).Problems; len(problems) != 0 {
		t.Errorf("the page reported errors: %q", problems)
	}
}
