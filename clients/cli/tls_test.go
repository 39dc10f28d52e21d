package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/servertest"
)

// TestTLS checks which certificates are trusted: that of a local server, and one of --ca-file, but
// no other.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	cert, key, err := server.DevCertificate(dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.DataDir, c.TLS.Cert, c.TLS.Key = dir, cert, key }))
	send := []string{"--addr", s.URL, "--token", s.Token, "send", "room", "hello", "--timeout", "5s", "--data-dir"}
	runWith(t, nil, "", append(send, dir)...).wantOK(t)
	elsewhere := t.TempDir()
	runWith(t, nil, "", append(send, elsewhere, "--ca-file", cert)...).wantOK(t)
	runWith(t, map[string]string{"PARLEY_CA_FILE": cert}, "", append(send, elsewhere)...).wantOK(t)

	send = append(send, elsewhere, "--timeout", "300ms")
	if got := runWith(t, nil, "", send...); got.code != 1 || !strings.Contains(got.stderr, "certificate") {
		t.Errorf("a certificate that nobody named: exit code %d, stderr %q", got.code, got.stderr)
	}
	empty := filepath.Join(elsewhere, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{empty, filepath.Join(elsewhere, "nothing.pem")} {
		if got := runWith(t, nil, "", append(send, "--ca-file", bad)...); got.code != 2 {
			t.Errorf("--ca-file %s: exit code %d, stderr %q", bad, got.code, got.stderr)
		}
	}
}
