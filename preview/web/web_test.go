package web

import (
	"io/fs"
	"strings"
	"testing"
)

func TestFilesAreRootedAtTheBuild(t *testing.T) {
	if _, err := fs.Stat(Files(), ".gitkeep"); err != nil {
		t.Errorf("Stat(.gitkeep) = %v, want the tracked placeholder", err)
	}
	_, err := fs.Stat(Files(), "index.html")
	if got, want := err == nil, Built(); got != want {
		t.Errorf("index.html exists = %v, but Built() = %v", got, want)
	}
}

// The server forbids inline scripts and everything from other hosts, so the
// built page may hold neither.
func TestPageNeedsNoInlineScriptAndNoOtherHost(t *testing.T) {
	if !Built() {
		t.Log("the web app is not built, there is no page to look at")
		return
	}
	page, err := fs.ReadFile(Files(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "<script")[1:] {
		attributes, _, _ := strings.Cut(part, ">")
		if !strings.Contains(attributes, ` src="/`) {
			t.Errorf("the page has a script without a source of its own: <script%s>", attributes)
		}
	}
	for _, scheme := range []string{"http://", "https://", `="//`} {
		if strings.Contains(string(page), scheme) {
			t.Errorf("the page names another host: it contains %q", scheme)
		}
	}
}
