package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// natsServer is the import path of nats-server, whose version go.mod pins.
const natsServer = "github.com/nats-io/nats-server/v2"

// parleyd is the import path of the program that a node runs.
const parleyd = "github.com/parleyhq/parley/server/cmd/parleyd"

// Root returns the root of this repository: the nearest directory with a go.work, from the working
// directory upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.work in the working directory or its parents")
		}
		dir = up
	}
}

// Build builds a command of this module, or of a module that it requires, into .cache/rig and
// returns its path. args are additional arguments of `go build`. It requires the network only for
// modules that were never downloaded. Concurrent builds of one name are safe.
func Build(ctx context.Context, pkg, name string, args ...string) (string, error) {
	return build(ctx, nil, pkg, name, args)
}

// BuildTool builds a program that tools/go.mod pins, like Build.
func BuildTool(ctx context.Context, pkg, name string) (string, error) {
	// A workspace rules out -modfile.
	return build(ctx, []string{"GOWORK=off"}, pkg, name, []string{"-modfile=tools/go.mod"})
}

func build(ctx context.Context, env []string, pkg, name string, args []string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "rig")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs that anyone may run
		return "", err
	}
	// The output goes directly to its final path: nothing is linked if it is up to date, and
	// otherwise go build replaces it with a rename.
	path := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, args...), pkg)...) //nolint:gosec // the rig's own
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, text)
	}
	return path, nil
}

// BuildNATS builds the nats-server that go.mod pins and returns its path.
func BuildNATS(ctx context.Context) (string, error) { return Build(ctx, natsServer, "nats-server") }

// BuildParleyd builds the server from this source and returns its path. args are additional
// arguments of `go build`.
func BuildParleyd(ctx context.Context, args ...string) (string, error) {
	return Build(ctx, parleyd, "parleyd", args...)
}

// Mongod returns the path of the mongod to run: the value of MONGOD, or the binary that
// hack/fetch-mongod.sh downloaded.
func Mongod() (string, error) {
	if bin := os.Getenv("MONGOD"); bin != "" {
		return bin, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".cache", "mongod", "bin", "mongod")
	if _, err := os.Stat(bin); err != nil {
		return "", fmt.Errorf("no mongod: run hack/fetch-mongod.sh, or set MONGOD: %w", err)
	}
	return bin, nil
}
