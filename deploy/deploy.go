// Package deploy holds what an installation is made with. In Go it offers the
// files that the binary carries along: the sample configuration and the
// read-only project template that every machine shows at /home/user/project.
package deploy

import (
	"embed"
	"io/fs"
)

//go:embed berth.yaml image/project
var files embed.FS

// SampleConfig is the commented configuration file of `berth up`.
func SampleConfig() []byte {
	data, err := files.ReadFile("berth.yaml")
	if err != nil {
		panic("BUG: the embedded configuration is missing: " + err.Error())
	}
	return data
}

// Template is the content of the machines' project template.
func Template() fs.FS {
	sub, err := fs.Sub(files, "image/project")
	if err != nil {
		panic("BUG: the embedded template is missing: " + err.Error())
	}
	return sub
}
