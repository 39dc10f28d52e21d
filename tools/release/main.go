// Command release prepares a clean copy of this repository for a release. It writes the version to
// go.work and to every go.mod that requires another module of this repository, and the checksums of
// those modules to go.sum. The checksums are known before the release, because no module contains a
// module that requires it. With -proxy it also writes the modules to a directory that Go can use as
// a module proxy.
//
//	release [-proxy DIRECTORY] COPY VERSION
//
// The copy must contain the files of the commit and nothing else: all of it becomes part of the
// modules.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// root is the path of the module at the top of the repository. The others are named after their
// directories.
const root = "github.com/parleyhq/parley"

// dirs are the directories of the modules. A module stands after those that it requires.
var dirs = []string{"gen/go", "sdk/go", "."}

func main() {
	proxy := flag.String("proxy", "", "the `directory` to write a module proxy to")
	flag.Parse()
	if err := run(*proxy, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(proxy string, args []string) error {
	if len(args) != 2 {
		return errors.New("requires two arguments: the copy and the version")
	}
	r := release{version: args[1], proxy: proxy}
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("%q is not a version such as v1.2.3", r.version)
	}
	var err error
	if r.copy, err = os.OpenRoot(args[0]); err != nil {
		return err
	}
	defer func() { _ = r.copy.Close() }()
	if r.proxy == "" {
		tmp, err := os.MkdirTemp("", "parley-release")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tmp) }()
		r.proxy = tmp
	}
	if err := r.workspace(); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := r.module(dir); err != nil {
			return fmt.Errorf("module %s: %w", dir, err)
		}
	}
	return nil
}

type release struct {
	copy           *os.Root
	version, proxy string

	// released are the modules that have been published so far, and sums their lines for go.sum.
	released []module.Version
	sums     []string
}

// workspace sets the version of the replaced modules of this repository in go.work.
func (r *release) workspace() error {
	const name = "go.work"
	data, err := r.copy.ReadFile(name)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return err
	}
	for _, old := range work.Replace {
		if strings.HasPrefix(old.Old.Path, root+"/") {
			old.Syntax.Token[1] = r.version
		}
	}
	return r.copy.WriteFile(name, modfile.Format(work.Syntax), 0o600)
}

// module edits the go.mod and go.sum of the module in dir, adds the license to it, and writes the
// module to the proxy.
func (r *release) module(dir string) error {
	mod, err := r.require(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if err := r.sum(filepath.Join(dir, "go.sum")); err != nil {
		return err
	}
	// Go adds the repository's license to a module that has none.
	license, err := r.copy.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	if err := r.copy.WriteFile(filepath.Join(dir, "LICENSE"), license, 0o600); err != nil {
		return err
	}
	return r.publish(dir, mod)
}

// require sets the version of the modules of this repository that the go.mod requires. It returns
// the go.mod's own module with the version of the release.
func (r *release) require(name string) (module.Version, error) {
	data, err := r.copy.ReadFile(name)
	if err != nil {
		return module.Version{}, err
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return module.Version{}, err
	}
	if len(file.Replace)+len(file.Exclude) > 0 {
		return module.Version{}, errors.New("go install refuses a go.mod with replace or exclude")
	}
	for _, m := range r.released {
		for _, required := range file.Require {
			if required.Mod.Path == m.Path {
				if err := file.AddRequire(m.Path, m.Version); err != nil {
					return module.Version{}, err
				}
			}
		}
	}
	if data, err = file.Format(); err != nil {
		return module.Version{}, err
	}
	return module.Version{Path: file.Module.Mod.Path, Version: r.version}, r.copy.WriteFile(name, data, 0o600)
}

// sum replaces the lines of this repository's modules in a go.sum by those of the modules published
// so far. Every module requires all that come before it in dirs.
func (r *release) sum(name string) error {
	data, err := r.copy.ReadFile(name)
	if err != nil {
		return err
	}
	lines := make(map[module.Version]string)
	var sorted []module.Version
	for line := range strings.Lines(string(data) + strings.Join(r.sums, "")) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("%s: a line with %d fields", name, len(fields))
		}
		m := module.Version{Path: fields[0], Version: fields[1]}
		ours := strings.HasPrefix(m.Path, root+"/")
		if ours && strings.TrimSuffix(m.Version, "/go.mod") != r.version {
			continue
		}
		if lines[m] == "" {
			sorted = append(sorted, m)
		}
		lines[m] = line
	}
	module.Sort(sorted)
	var out strings.Builder
	for _, m := range sorted {
		out.WriteString(lines[m])
	}
	return r.copy.WriteFile(name, []byte(out.String()), 0o600)
}

// publish writes a module's files for the module proxy protocol, and adds the module to released
// and its lines for go.sum to sums.
func (r *release) publish(dir string, m module.Version) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(r.proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": m.Version, "Time": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	gomod, err := r.copy.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, m, filepath.Join(r.copy.Name(), dir)); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": gomod, m.Version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	all, err := dirhash.HashZip(filepath.Join(to, m.Version+".zip"), dirhash.Hash1)
	if err != nil {
		return err
	}
	alone, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(gomod)), nil
	})
	if err != nil {
		return err
	}
	r.released = append(r.released, m)
	r.sums = append(r.sums,
		fmt.Sprintf("%s %s %s\n", m.Path, m.Version, all), fmt.Sprintf("%s %s/go.mod %s\n", m.Path, m.Version, alone))
	return nil
}
