package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A browser is one Chromium page, driven through browser.mjs.
type browser struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	cmd := exec.Command("node", "browser.mjs")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser's driver ended with %v", err)
		}
	})
	return &browser{t, in, bufio.NewReader(out)}
}

type args map[string]any

// do sends one command of browser.mjs and returns its answer.
func (b *browser) do(name string, a args) (answer struct {
	Error    string
	Status   int
	URL      string
	Overflow int
	Problems []string
	Cookies  []struct {
		Name             string
		HTTPOnly, Secure bool
	}
}) {
	b.t.Helper()
	if a == nil {
		a = args{}
	}
	a["do"] = name
	line, err := json.Marshal(a)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	text, err := b.out.ReadBytes('\n')
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		b.t.Fatalf("browser said %q: %v", text, err)
	}
	if answer.Error != "" {
		b.shot("failure")
		b.t.Fatalf("browser: %s: %s", line, answer.Error)
	}
	return answer
}

// shot keeps a picture for review when BERTH_SHOTS names a directory.
func (b *browser) shot(name string) {
	if dir := os.Getenv("BERTH_SHOTS"); dir != "" {
		line, _ := json.Marshal(args{"do": "shot", "file": filepath.Join(dir, b.t.Name()+"-"+name+".png")})
		b.in.Write(append(line, '\n'))
		b.out.ReadBytes('\n')
	}
}
