package embedded

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestFormat checks that Open converts a store of the format before, and refuses one of another
// format, or without one, as the first format was.
func TestFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	change := func(f func(db *pebble.DB) error) {
		t.Helper()
		db, err := pebble.Open(dir, &pebble.Options{Logger: newLogger(nil, &failure{failed: make(chan struct{})})})
		if err != nil {
			t.Fatal(err)
		}
		if err := f(db); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open := func() error {
		s, err := Open(dir, Config{})
		if err != nil {
			return err
		}
		return s.Close(t.Context())
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("a store of the same format: %v", err)
	}
	change(func(db *pebble.DB) error { return db.Set([]byte{formatRow}, []byte("4"), pebble.Sync) })
	if err := open(); err == nil || !strings.Contains(err.Error(), "has format 4 and this parleyd reads format 3") {
		t.Errorf("a store of another format: %v", err)
	}
	change(func(db *pebble.DB) error { return db.Set([]byte{formatRow}, []byte("2"), pebble.Sync) })
	if err := open(); err != nil {
		t.Errorf("a store of the format before: %v", err)
	}
	change(func(db *pebble.DB) error {
		got, closer, err := db.Get([]byte{formatRow})
		if err != nil {
			return err
		}
		if string(got) != "3" {
			t.Errorf("the store has format %s after it was opened", got)
		}
		return closer.Close()
	})
	change(func(db *pebble.DB) error { return db.Delete([]byte{formatRow}, pebble.Sync) })
	if err := open(); err == nil || !strings.Contains(err.Error(), "has format 1 and this parleyd reads format 3") {
		t.Errorf("a store without a format: %v", err)
	}
}
