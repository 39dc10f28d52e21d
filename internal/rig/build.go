package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// natsServer is the command that go.mod pins.
const natsServer = "github.com/nats-io/nats-server/v2"

// parleyd is the node's command.
const parleyd = "github.com/parleyhq/parley/server/cmd/parleyd"

// Root returns the folder of this source: the nearest one above the working directory that has a go.work.
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
			return "", errors.New("no go.work above the working directory")
		}
		dir = up
	}
}

// Build builds a command of this source, or of a module that it requires, into .cache/rig with `go build` and more
// arguments, and gives its path. It needs the network only for modules that were never fetched. Two builds of one name
// at a time do no harm.
func Build(ctx context.Context, pkg, name string, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "rig")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs that anyone may run
		return "", err
	}
	// Straight to its place: so nothing is linked when it is up to date, and else go build replaces it by a rename.
	path := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, args...), pkg)...) //nolint:gosec // the rig's own
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, text)
	}
	return path, nil
}

// BuildNATS builds the nats-server that go.mod pins.
func BuildNATS(ctx context.Context) (string, error) { return Build(ctx, natsServer, "nats-server") }

// BuildParleyd builds the server from this source; args are more arguments of `go build`.
func BuildParleyd(ctx context.Context, args ...string) (string, error) {
	return Build(ctx, parleyd, "parleyd", args...)
}

// Mongod finds the mongod to run: what MONGOD names, or the one that hack/fetch-mongod.sh fetched.
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
