package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
)

// devConfig returns the configuration of a dev server in a directory that does not exist yet.
func devConfig(t *testing.T) config.Config {
	t.Helper()
	cfg := server.DevConfig()
	cfg.DataDir = filepath.Join(t.TempDir(), "data")
	cfg.Listen, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// writerFunc is an io.Writer that calls a function.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// A dev server whose start is canceled while its NATS server starts, after the store and Redis,
// closes everything: another server can start in its directory.
func TestCanceledStartClosesEverything(t *testing.T) {
	t.Parallel()
	cfg := devConfig(t)
	cfg.Log.Level = "debug"
	ctx, cancel := context.WithCancel(t.Context())
	log := writerFunc(func(p []byte) {
		if bytes.Contains(p, []byte("nats-server")) {
			cancel()
		}
	})
	s, err := server.New(ctx, cfg, server.WithDev(), server.WithLogOutput(log))
	if !errors.Is(err, server.ErrCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("New returned %v, %v", s, err)
	}
	if s, err = server.New(t.Context(), cfg, server.WithDev(), server.WithLogOutput(io.Discard)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A start that waits for a MongoDB that does not answer ends soon after it is canceled.
func TestCanceledStartReturnsPromptly(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if conn, err := silent.Accept(); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	cfg := devConfig(t)
	cfg.Mongo.URI = config.SecretURL("mongodb://" + silent.Addr().String() + "/?directConnection=true")
	began := time.Now()
	if _, err := server.New(ctx, cfg, server.WithLogOutput(io.Discard)); !errors.Is(err, server.ErrCanceled) {
		t.Errorf("New returned %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A dev server that can't lock its data directory changes nothing in it.
func TestDevLocksDirectoryFirst(t *testing.T) {
	t.Parallel()
	cfg := devConfig(t)
	cfg.Auth.HS256Secret = "0123456789abcdef0123456789abcdef"
	first, err := server.New(t.Context(), cfg, server.WithDev(), server.WithLogOutput(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Auth.HS256Secret = ""
	second, err := server.New(t.Context(), cfg, server.WithDevTLS(), server.WithLogOutput(io.Discard))
	if err == nil {
		t.Error("two servers share a directory", second.Close(t.Context()))
	}
	for _, name := range []string{"dev-secret", "dev-cert.pem", "dev-key.pem"} {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	third, err := server.New(t.Context(), cfg, server.WithDevTLS(), server.WithLogOutput(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if url := third.URL(); url[:8] != "https://" {
		t.Errorf("with a certificate the address is %s", url)
	}
	if err := third.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
