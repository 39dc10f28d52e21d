package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestDevRefusesOtherEngines(t *testing.T) {
	t.Parallel()
	if err := serveOnly([]string{"HOME=/", "PARLEY_NATS_MAX_AGE=1h", "PARLEY_REDIS_KEY_PREFIX=a", "PARLEY_SHARDS=4", "PARLEY_MONGO_SERVICE_HOST=10.0.0.1"}); err != nil {
		t.Errorf("what dev heeds: %v", err)
	}
	for _, name := range []string{
		"PARLEY_MONGO_URI", "PARLEY_MONGO_DATABASE", "PARLEY_REDIS_ADDR", "PARLEY_REDIS_PASSWORD", "PARLEY_NATS_URL",
		"PARLEY_REDIS_USERNAME", "PARLEY_REDIS_PASSWORD_FILE", "PARLEY_REDIS_TLS_ENABLED", "PARLEY_REDIS_SENTINEL_ADDRS", "PARLEY_REDIS_CLUSTER_ADDRS",
		"PARLEY_NATS_TLS_CA", "PARLEY_MONGO_URI_FILE", "PARLEY_CONFIG",
	} {
		err := serveOnly([]string{"HOME=/", name + "=secret"})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "parleyd serve") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A dev server that can't write its banner is closed: the next one can lock its directory.
//
//nolint:paralleltest // it replaces os.Stdout
func TestDevWithoutOutput(t *testing.T) {
	closed, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err == nil {
		err = closed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = closed
	defer func() { os.Stdout = stdout }()
	dev := devCmd{Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", DataDir: filepath.Join(t.TempDir(), "data")}
	for range 2 {
		if err := dev.Run(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Run returned %v", err)
		}
	}
}

// A start that a signal cancels succeeds.
func TestCanceledDev(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dev := devCmd{Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", DataDir: filepath.Join(t.TempDir(), "data"), TLS: true}
	if err := dev.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestHealthcheck checks that the command asks the ops address of the configuration file, unless an
// environment variable overrides it.
func TestHealthcheck(t *testing.T) {
	var ready atomic.Int64
	ready.Store(http.StatusServiceUnavailable)
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(int(ready.Load()))
		}
	}))
	defer ops.Close()
	_, port, err := net.SplitHostPort(ops.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "parley.yaml")
	check := func(listen string) error {
		if err := os.WriteFile(path, []byte("ops_listen: '"+listen+"'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return (&healthcheckCmd{File: path}).Run(t.Context())
	}
	if err := check("0.0.0.0:" + port); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("of a server that is not ready: %v", err)
	}
	ready.Store(http.StatusOK)
	if err := check("0.0.0.0:" + port); err != nil {
		t.Error(err)
	}
	if err := check("127.0.0.1:1"); err == nil {
		t.Error("another address than the file's was asked")
	}
	t.Setenv("PARLEY_OPS_LISTEN", ":"+port)
	if err := check("127.0.0.1:1"); err != nil {
		t.Errorf("the variable has no effect: %v", err)
	}
	for listen, want := range map[string]string{
		"[::]:8081": "http://[::1]:8081/readyz", ":8081": "http://127.0.0.1:8081/readyz", "10.0.0.1:1": "http://10.0.0.1:1/readyz",
	} {
		if got := readyURL(listen); got != want {
			t.Errorf("%s is asked at %s, want %s", listen, got, want)
		}
	}
}
