// Package program finds programs that are installed beside the running one, and reports its
// version.
package program

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
)

// Find returns the path of the program name: the executable file beside the running program, else
// the first one in PATH. The error matches exec.ErrNotFound if there is neither.
func Find(name string) (string, error) {
	if exe, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(exe), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no %s beside this program: %w", name, err)
	}
	return path, nil
}

// version is set by the linker in releases, with -X
// github.com/parleyhq/parley/internal/program.version=VERSION.
var version string

// Version returns the version of the running program: the linker's value, else the module's
// version, else the commit of a build from a repository. It returns "devel" if the build records
// none of these.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return cmp.Or(version, versionOf(info))
}

func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := make(map[string]string, len(info.Settings))
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "devel"
	}
	if settings["vcs.modified"] == "true" {
		revision += "+dirty"
	}
	return "devel-" + revision
}
