// Package pages holds the built web pages.
package pages

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files returns the built pages: index.html, assistant.html and queues.html at the root, what they
// load under assets with the content's hash in each name, and parley.js, the TypeScript SDK as one
// module without imports. The files are part of the binary: no Node is needed to build it. It is
// safe for concurrent use.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) //nolint:forbidigo // it can't be: "dist" is a valid path, as the embedding above proves
	}
	return files
}
