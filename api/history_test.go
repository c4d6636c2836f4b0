package api

import (
	"strings"
	"testing"

	"berth"
)

func TestVersions(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	g.trees.before["acme/members/ann/d/f@1"] = "one"
	g.trees.before["acme/members/ann/d/f@2"] = "second"
	g.trees.before["acme/shared/f@1"] = "team's"
	g.do(g.ann, "PUT", "/v1/files/me/d/f", "now").ok(201, nil)
	var list struct{ Versions []berth.Version }
	g.do(g.ann, "GET", "/v1/files/me/d/f?versions=1", "").ok(200, &list)
	if len(list.Versions) != 2 || list.Versions[0].ID != "2" || list.Versions[0].Size != 6 {
		t.Errorf("versions: %+v", list)
	}
	if a := g.do(g.ann, "GET", "/v1/files/me/d/f?versions=1&x", ""); strings.Contains(a.body, "null") {
		t.Errorf("the answer has null: %s", a.body)
	}
	a := g.do(g.ann, "GET", "/v1/files/me/d/f?version=2", "").ok(200, nil)
	if a.body != "second" || !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") || a.header.Get("Content-Security-Policy") == "" {
		t.Errorf("a version: %q, %v", a.body, a.header)
	}
	if a := g.do(g.ann, "HEAD", "/v1/files/me/d/f?version=2", ""); a.status != 200 || a.header.Get("Content-Length") != "6" {
		t.Errorf("head of a version: %d, %v", a.status, a.header)
	}
	g.do(g.ann, "POST", "/v1/files/me/d/f?restore=1", "").ok(200, nil)
	if a := g.do(g.ann, "GET", "/v1/files/me/d/f", ""); a.body != "one" {
		t.Errorf("restored: %q", a.body)
	}
	if a := g.do(g.ann, "GET", "/v1/files/me/shared/f?version=1", ""); a.body != "team's" {
		t.Errorf("of the shared directory: %q", a.body)
	}
	var deleted struct {
		Files []berth.DeletedFile
		More  bool
	}
	for path, want := range map[string]string{"me/d/": "below d", "me": "below ", "shared/": "below "} {
		if g.do(g.ann, "GET", "/v1/files/"+path+"?deleted=1", "").ok(200, &deleted); len(deleted.Files) != 1 || deleted.Files[0].Path != want {
			t.Errorf("deleted in %s: %+v", path, deleted)
		}
	}
	g.do(g.ann, "GET", "/v1/files/me/d/f?version=7", "").refused(404, "not_found")
	g.do(g.ann, "GET", "/v1/files/me/d/f?version=x", "").refused(400, "invalid")
	g.do(g.ann, "GET", "/v1/files/me/d/?versions=1", "").refused(400, "invalid", "directory")
	g.do(g.ann, "POST", "/v1/files/me/?restore=1", "").refused(400, "invalid", "directory")
	g.do(bob, "GET", "/v1/files/me/d/f?version=2", "").refused(404, "not_found")
	if g.do(bob, "GET", "/v1/files/me/d/f?versions=1", "").ok(200, &list); len(list.Versions) != 0 {
		t.Errorf("bob sees ann's versions: %+v", list)
	}
	g.do(g.key, "GET", "/v1/files/me/d/f?version=2", "").refused(403, "forbidden")
}

func TestChangesSince(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	const query = "/v1/changes?tree=acme/members/ann"
	g.do(g.ann, "GET", query, "").refused(404, "not_found", "call")
	id := g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil).header.Get(callHeader)
	g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil)
	for suffix, want := range map[string]uint64{"": 2, "&call=" + id: 1, "&checkpoint=1": 1} {
		var c changesAnswer
		if g.do(g.ann, "GET", query+suffix, "").ok(200, &c); c.Checkpoint != want || len(c.Changes) != 1 || c.Changes[0].Path != "f" {
			t.Errorf("%q: got %+v, want those since checkpoint %d", suffix, c, want)
		}
	}
	g.do(g.ann, "GET", query+"&checkpoint=10", "").refused(410, "not_found")
	g.do(g.ann, "GET", query+"&checkpoint=x", "").refused(400, "invalid", "checkpoint")
	g.do(bob, "GET", query, "").refused(404, "not_found", "tree")
	g.do(g.key, "GET", query, "").refused(404, "not_found", "tree")
}
