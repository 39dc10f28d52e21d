package certfile_test

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/certfile"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// move puts a file in the place of another, as a renewal does.
func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestPair replaces a certificate and its key one after the other, and breaks them.
func TestPair(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	cert, key := authority.Files("first")
	cert2, key2 := authority.Files("second")
	_, key3 := authority.Files("third")
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		pair, err := certfile.NewPair(cert, key, slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}
		want := func(name string, errors int) {
			t.Helper()
			<-time.After(time.Second)
			for range 3 {
				if got := pair.Certificate().Leaf.Subject.CommonName; got != name {
					t.Errorf("the certificate is %s, want %s", got, name)
				}
			}
			if n := strings.Count(logged.String(), "certificate files are invalid"); n != errors {
				t.Errorf("%d errors were logged, want %d:\n%s", n, errors, logged.String())
			}
		}
		want("first", 0)
		move(t, cert2, cert)
		if got := pair.Certificate().Leaf.Subject.CommonName; got != "first" {
			t.Errorf("within a second the files were read again: %s", got)
		}
		want("first", 1) // the keys do not match
		want("first", 1) // reported once
		move(t, key2, key)
		want("second", 1)
		move(t, key, key2)
		want("second", 2) // no file
		move(t, key3, key)
		want("second", 3)
		move(t, key2, key)
		want("second", 3)
	})
}

func TestRoots(t *testing.T) {
	t.Parallel()
	first, second := testkit.NewAuthority(t), testkit.NewAuthority(t)
	verify := func(roots *x509.CertPool, a *testkit.Authority) bool { return roots.Equal(a.Pool()) }
	synctest.Test(t, func(t *testing.T) {
		roots, err := certfile.NewRoots(first.CAFile, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if !verify(roots.Pool(), first) {
			t.Error("the first certificate is missing")
		}
		other := filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(other, []byte("no certificate"), 0o600); err != nil {
			t.Fatal(err)
		}
		move(t, other, first.CAFile)
		<-time.After(time.Second)
		if !verify(roots.Pool(), first) {
			t.Error("a broken file was used")
		}
		move(t, second.CAFile, first.CAFile)
		<-time.After(time.Second)
		if !verify(roots.Pool(), second) {
			t.Error("the second certificate is not used")
		}
	})
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	cert, _ := testkit.NewAuthority(t).Files("a")
	_, key := testkit.NewAuthority(t).Files("b")
	if _, err := certfile.NewPair(cert, key, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate with another's key was accepted")
	}
	if _, err := certfile.NewPair(cert, filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing key was accepted")
	}
	if _, err := certfile.NewRoots(key, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a file without a certificate: %v", err)
	}
}
