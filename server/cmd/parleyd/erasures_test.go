package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server"
)

func TestReadErasures(t *testing.T) {
	t.Parallel()
	valid := `{"request_id":"7","user_id":"ann","state":"erased","message_count":3}` + "\n" + `{"request_id":"x","user_id":"bob"}`
	for _, c := range []struct {
		text string
		want []server.Erasure
		err  string
	}{
		{"", nil, ""},
		{valid, []server.Erasure{{RequestID: "7", UserID: "ann"}, {RequestID: "x", UserID: "bob"}}, ""},
		{valid + "\n{", nil, "erasure 3"},
		{"7: erasure of ann: erased", nil, "erasure 1"},
	} {
		path := filepath.Join(t.TempDir(), "erasures.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readErasures(path)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, want %q", c.text, err, c.err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}
