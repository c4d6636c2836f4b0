// Package web embeds the browser application: the files that `npm run build`
// leaves in dist. Go code builds without them, so that a clean clone compiles;
// Built tells the two cases apart.
package web

import (
	"embed"
	"io/fs"
)

// The placeholder dist/.gitkeep is tracked, so the pattern always matches.
//
//go:embed all:dist
var embedded embed.FS

// Files returns the application's files, rooted where index.html is. Before the
// web build it holds no index.html.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "dist")
	if err != nil {
		panic("BUG: dist is not a valid path: " + err.Error())
	}
	return files
}

// Built reports whether the application was built before this program was. When
// it was not, a server says so instead of serving the page.
func Built() bool {
	_, err := fs.Stat(embedded, "dist/index.html")
	return err == nil
}
