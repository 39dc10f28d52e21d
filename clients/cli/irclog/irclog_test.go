package irclog_test

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/clients/cli/irclog"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]irclog.Line{
		"[09:56] <ann> good morning":     {Kind: irclog.Text, Sender: "ann", Content: "good morning"},
		"[09:56] <ann>  two  spaces ":    {Kind: irclog.Text, Sender: "ann", Content: " two  spaces "},
		"[09:56] <b[o] b> hello":         {Kind: irclog.Text, Sender: "b[o]%20b", Content: "hello"},
		"[09:56] <50%> hello":            {Kind: irclog.Text, Sender: "50%25", Content: "hello"},
		"[09:56] <zo\xeb> hello":         {Kind: irclog.Text, Sender: "zo%EB", Content: "hello"},
		"[09:56] <ann> <bob> quoted":     {Kind: irclog.Text, Sender: "ann", Content: "<bob> quoted"},
		"[09:56] <ann>":                  {Kind: irclog.Text, Sender: "ann", Content: "[09:56] <ann>"},
		"[09:56] <ann> ":                 {Kind: irclog.Text, Sender: "ann", Content: "[09:56] <ann> "},
		"[09:56] <ann>   \t ":            {Kind: irclog.Text, Sender: "ann", Content: "[09:56] <ann>   \t "},
		"[09:56] <ann> === not a notice": {Kind: irclog.Text, Sender: "ann", Content: "=== not a notice"},
		"[09:56] <ann>  * not an action": {Kind: irclog.Text, Sender: "ann", Content: " * not an action"},
		"[09:56]  * ann waves at bob":    {Kind: irclog.Action, Sender: "ann", Content: "waves at bob"},
		"[09:56]  * ann":                 {Kind: irclog.Action, Sender: "ann", Content: "[09:56]  * ann"},
		"=== ann has joined":             {Kind: irclog.Notice},
		"":                               {Kind: irclog.Blank},
		"   ":                            {Kind: irclog.Blank},
		"Log opened":                     {Kind: irclog.Unknown},
		"[9:56] <ann> hello":             {Kind: irclog.Unknown},
		"[09:56] <ann> caf\xe9 \xff!":    {Kind: irclog.Text, Sender: "ann", Content: "caf\uFFFD \uFFFD!", Repaired: true},
		"[09:56] <ann> \xe2\x82":         {Kind: irclog.Text, Sender: "ann", Content: "\uFFFD\uFFFD", Repaired: true},
		"[09:56] <ann> nul\x00byte":      {Kind: irclog.Text, Sender: "ann", Content: "nul\uFFFDbyte", Repaired: true},
		"[09:56] <ann> café \u202e":      {Kind: irclog.Text, Sender: "ann", Content: "café \u202e"},
	} {
		want.Number = 7
		if diff := cmp.Diff(want, irclog.Parse(7, []byte(raw))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
	}
}

func TestReadAndFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.raw.txt": "[10:00] <bob> two\r\n\n[10:01] <bob> three", "a.raw.txt": "=== joined\n[09:00] <ann> one\n", "notes.txt": "no",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := irclog.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(dir, "a.raw.txt"), filepath.Join(dir, "b.raw.txt")}; !cmp.Equal(files, want) {
		t.Errorf("files are %q, want %q", files, want)
	}
	lines, err := irclog.Read(files[1])
	if err != nil {
		t.Fatal(err)
	}
	want := []irclog.Line{
		{Number: 1, Kind: irclog.Text, Sender: "bob", Content: "two"},
		{Number: 2, Kind: irclog.Blank},
		{Number: 3, Kind: irclog.Text, Sender: "bob", Content: "three"},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if one, err := irclog.Files(filepath.Join(dir, "notes.txt")); err != nil || len(one) != 1 {
		t.Errorf("a file by name: %q, %v", one, err)
	}
	if _, err := irclog.Files(t.TempDir()); err == nil {
		t.Errorf("a directory without logs is no error")
	}
	if _, err := irclog.Files(filepath.Join(dir, "missing")); err == nil {
		t.Errorf("a missing directory is no error")
	}
}

// FuzzParse holds every message to what a server takes: an id as sender, text as content.
func FuzzParse(f *testing.F) {
	f.Add([]byte("[09:56] <ann> hello"))
	f.Add([]byte("[09:56]  * b\xff waves\x00"))
	f.Add([]byte("[09:56] < >"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line := irclog.Parse(1, raw)
		if !line.IsMessage() {
			return
		}
		if line.Sender == "" || line.Content == "" || !utf8.ValidString(line.Content) {
			t.Fatalf("%q gives %+v", raw, line)
		}
		for i := range len(line.Sender) {
			if c := line.Sender[i]; c <= ' ' || c > '~' {
				t.Fatalf("%q gives the sender %q", raw, line.Sender)
			}
		}
		for _, r := range line.Content {
			if r == 0 {
				t.Fatalf("%q gives NUL", raw)
			}
		}
	})
}
