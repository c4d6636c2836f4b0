package api

import (
	"strings"
	"testing"

	"berth/preview"
)

func TestDiff(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	const query = "/v1/diff?tree=acme/members/ann&path="
	g.do(g.ann, "GET", query+"f", "").refused(404, "not_found", "call")
	id := g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil).header.Get(callHeader)
	g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil)
	g.trees.before["acme/members/ann/f@1"] = "one\ntwo\n"
	g.trees.before["acme/members/ann/f@2"] = "one\n"
	g.trees.before["acme/members/ann/gone@2"] = "x\n"
	g.write(annDisk, "f", "one\nTWO\n")
	g.write(annDisk, "new", "n\n")
	g.write(annDisk, "binary", "\x00")
	g.write(annDisk, "large", strings.Repeat("x", preview.MaxDiffBytes+1))

	var d diffAnswer
	get := func(path string) diffAnswer {
		t.Helper()
		d = diffAnswer{}
		g.do(g.ann, "GET", query+path, "").ok(200, &d)
		return d
	}
	if get("f&call=" + id); d.Added != 1 || d.Removed != 1 || d.Checkpoint != 1 || string(d.Call) != id || len(d.Hunks) != 1 {
		t.Errorf("against the first call: %+v", d)
	}
	if get("f"); d.Added != 1 || d.Removed != 0 || d.Checkpoint != 2 {
		t.Errorf("against the latest call: %+v", d)
	}
	if get("f&checkpoint=1"); d.Removed != 1 {
		t.Errorf("against checkpoint 1: %+v", d)
	}
	if get("new"); d.BeforeExists || !d.AfterExists || d.Added != 1 {
		t.Errorf("a new file: %+v", d)
	}
	if get("gone"); !d.BeforeExists || d.AfterExists || d.Removed != 1 {
		t.Errorf("a removed file: %+v", d)
	}
	if get("binary"); !d.Binary || d.Hunks == nil {
		t.Errorf("a binary file: %+v", d)
	}
	g.do(g.ann, "GET", query+"large", "").refused(413, "too_large")
	g.do(g.ann, "GET", query+"none", "").refused(404, "not_found", "none")
	g.do(g.ann, "GET", query+"../f", "").refused(400, "invalid")
	g.do(g.ann, "GET", query+"f&call=a/b", "").refused(400, "invalid", "call")
	g.do(g.ann, "GET", query+"f&call=unknown", "").refused(404, "not_found", "unknown")
	g.do(g.ann, "GET", query+"f&checkpoint=-1", "").refused(400, "invalid", "checkpoint")
	g.do(g.ann, "GET", query, "").refused(400, "invalid", "directory")
	g.do(bob, "GET", query+"f", "").refused(404, "not_found", "tree")
	g.do(g.key, "GET", query+"f", "").refused(404, "not_found", "tree")
	for _, tree := range []string{"", "acme", "acme/machines/" + string(g.machines.calls[0].View.Machine), "acme/end_users/u/session-roots/c", "other/shared"} {
		if a := g.do(g.ann, "GET", "/v1/diff?path=f&tree="+tree, ""); a.status != 404 && a.status != 400 {
			t.Errorf("tree %q: status %d", tree, a.status)
		}
	}

	g.do(g.key, "PUT", "/v1/chats/k", `{"end_user":"u"}`).ok(200, nil)
	g.do(g.key, "POST", "/v1/chats/k/tools/bash", "{}").ok(200, nil)
	g.do(g.key, "PUT", "/v1/files/chats/k/f", "x\n").ok(201, nil)
	g.do(g.key, "GET", "/v1/diff?tree=acme/end_users/u/session-roots/k&path=f", "").ok(200, &d)
	if d.Added != 1 {
		t.Errorf("a key's file: %+v", d)
	}
	g.do(g.key, "GET", "/v1/diff?tree=acme/end_users/other/session-roots/k&path=f", "").refused(404, "not_found", "tree")
}
