// Command prose checks the language of comments, messages and documents by the rules in rules.go.
//
//	prose FILE...
//
// It reads the comments of Go, TypeScript and proto files, the messages of Go code except tests,
// and Markdown. It ignores other files, generated code and files that do not exist. It prints its
// findings and exits with status 1 if there are any.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	n, err := run(os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	case n > 0:
		fmt.Fprintf(os.Stderr, "prose: %d findings; tools/prose/rules.go has the rules\n", n)
		os.Exit(1)
	}
}

// run prints the findings in files to w and returns how many there are.
func run(files []string, w io.Writer) (int, error) {
	c := newChecker(rules)
	n := 0
	for _, name := range files {
		src, err := os.ReadFile(name) //nolint:gosec // the user names the files
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return n, err
		}
		found, err := c.file(name, string(src))
		if err != nil {
			return n, err
		}
		for _, f := range found {
			if _, err := fmt.Fprintf(w, "%s:%d: %s: %s\n", name, f.line, f.rule, f.message); err != nil {
				return n, err
			}
		}
		n += len(found)
	}
	return n, nil
}

// file returns the findings in a file, sorted by line. The name's extension determines the
// language.
func (c checker) file(name, src string) ([]finding, error) {
	var (
		all   []block
		found []finding
		err   error
	)
	switch filepath.Ext(name) {
	case ".md":
		all = markdown(src)
	case ".go":
		if all, err = golang(name, src); err != nil {
			return nil, err
		}
	case ".proto", ".ts", ".tsx":
		all = slash(src)
	default:
		return nil, nil
	}
	if len(all) > 0 && filepath.Ext(name) != ".md" {
		found = columns(src)
	}
	for i := range all {
		found = append(found, c.block(&all[i])...)
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	return found, nil
}
