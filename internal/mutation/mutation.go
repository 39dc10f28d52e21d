// Package mutation breaks the source in a few places, to see whether a test notices. It changes no
// source file: the go command reads the changed texts from an overlay.
package mutation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces Old, which must occur exactly once in File, with New. File is relative to the
// source's root.
type Edit struct{ File, Old, New string }

// Apply returns the text of every file that the edits change, by path relative to root, the root
// folder of the source. It returns an error if an edit's Old does not occur exactly once in its
// file. The source has then changed, and the edit must follow.
func Apply(root string, edits []Edit) (map[string]string, error) {
	changed := make(map[string]string)
	for _, e := range edits {
		text, ok := changed[e.File]
		if !ok {
			data, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("%s contains the old text %d times, want once: the source changed, so update the edit:\n%s",
				e.File, n, e.Old)
		}
		changed[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return changed, nil
}

// Overlay writes the changed files into dir, which must exist, and returns the path of the file for
// the flag -overlay of go build and go test. The files must remain until the command has ended.
func Overlay(dir, root string, edits []Edit) (string, error) {
	changed, err := Apply(root, edits)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(dir, fmt.Sprintf("%d%s", len(replace), filepath.Ext(file)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = path
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
