package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAPIKey is the story of an API-key caller with two end users.
func TestAPIKey(t *testing.T) {
	b := start(t)
	var made struct{ ID, Key string }
	b.call(t, b.Admin, "POST", "/v1/keys", map[string]any{"label": "story"}).want(t, 201, &made)
	key := made.Key
	for _, user := range []string{"u1", "u2"} {
		b.call(t, key, "PUT", "/v1/chats/chat-"+user, map[string]any{"end_user": user}).want(t, 200, nil)
	}
	b.call(t, key, "PUT", "/v1/chats/chat-u1", map[string]any{"end_user": "u2"}).refused(t, 409, "chat-u1")
	b.call(t, b.APIKey, "GET", "/v1/chats/chat-u1", nil).refused(t, 404, "chat-u1")

	for _, user := range []string{"u1", "u2"} {
		chat := "chat-" + user
		equal(t, "working directory", b.sh(t, key, chat, "pwd"), "/home/user/workspace/profy/"+chat)
		b.sh(t, key, chat, "echo of-"+user+" > mine")
		equal(t, "workspace", b.sh(t, key, chat, "ls /home/user/workspace"), "profy")
		equal(t, "session directory", b.sh(t, key, chat, "ls /home/user/workspace/profy"), chat)
		r := b.bash(t, key, chat, "touch /home/user/workspace/next; touch /home/user/workspace/profy/next; mkdir /home/user/workspace/shared")
		if n := strings.Count(r.Stderr, "Read-only file system"); n != 3 {
			t.Errorf("writing next to the session root: %q, want 3 x EROFS", r.Stderr)
		}
	}
	for _, user := range []string{"u1", "u2"} {
		chat := "chat-" + user
		found := b.sh(t, key, chat, "find / -path /proc -prune -o -name mine -print 2>/dev/null; true")
		equal(t, "files of that name in the whole machine", found, "/home/user/workspace/profy/"+chat+"/mine")
	}
	// Another expert of the chat sees the same files in its own directory.
	var r bashResult
	b.call(t, key, "POST", "/v1/chats/chat-u1/tools/bash", map[string]any{"command": "pwd; cat mine", "expert": "critic"}).want(t, 200, &r)
	equal(t, "the other expert's view", r.Stdout, "/home/user/workspace/critic/chat-u1\nof-u1\n")

	b.flush(t)
	bucket := b.bucket(t)
	for _, user := range []string{"u1", "u2"} {
		name := fmt.Sprintf("%s/end_users/%s/session-roots/chat-%s/mine", b.Workspace, user, user)
		content, _ := bucket.object(t, name)
		equal(t, "object "+name, content, "of-"+user+"\n")
	}
	revoke(t, b, made.ID, key)
}

// revoke takes the key away while one of its event streams is open.
func revoke(t *testing.T, b *berth, id, key string) {
	t.Helper()
	req, err := http.NewRequest("GET", b.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("event stream: %v, %v", res, err)
	}
	defer res.Body.Close()
	ended := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(res.Body); s.Scan(); {
		}
		close(ended)
	}()
	b.call(t, b.Admin, "DELETE", "/v1/keys/"+id, nil).want(t, 204, nil)
	b.call(t, key, "GET", "/v1/chats/chat-u1", nil).refused(t, 401)
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		t.Error("an event stream of a revoked key is still open after 3 s")
	}
	eventually(t, "the machines of the revoked key are gone", 20*time.Second, func() bool {
		var status struct {
			Machines struct{ Running int }
		}
		b.status(t, &status)
		return status.Machines.Running == 0
	})
}

// TestIdleStop has the idle limit stop a key's machine; the next call brings it
// back with its files.
func TestIdleStop(t *testing.T) {
	b := start(t, "--config", config(t, "idle_minutes_key: 0.05\n"))
	b.call(t, b.APIKey, "PUT", "/v1/chats/c", map[string]any{"end_user": "u"}).want(t, 200, nil)
	b.sh(t, b.APIKey, "c", "echo kept > f; echo home > ~/g")
	eventually(t, "the idle machine sleeps", 30*time.Second, func() bool { return b.machine(t, b.APIKey, "c") == "sleeping" })
	equal(t, "files after the idle stop", b.sh(t, b.APIKey, "c", "cat f ~/g"), "kept\nhome")
}
