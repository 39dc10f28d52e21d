package irclog_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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
		if want.IsMessage() {
			want.Minute = 9*60 + 56
		}
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
		{Number: 1, Kind: irclog.Text, Sender: "bob", Content: "two", Minute: 600},
		{Number: 2, Kind: irclog.Blank},
		{Number: 3, Kind: irclog.Text, Sender: "bob", Content: "three", Minute: 601},
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

func TestOffsets(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]struct {
		stamp string
		want  time.Duration
	}{
		"one": {{"09:56", 0}},
		"lines of a minute are spread over it": {
			{"09:56", 0},
			{"09:56", 15 * time.Second},
			{"09:56", 30 * time.Second},
			{"09:56", 45 * time.Second},
			{"09:57", time.Minute},
			{"09:57", 90 * time.Second},
			{"10:01", 5 * time.Minute},
		},
		"midnight": {{"23:58", 0}, {"00:01", 3 * time.Minute}},
		"a 12-hour clock passes noon, and then midnight": {
			{"11:00", 0},
			{"12:30", 90 * time.Minute},
			{"01:00", 2 * time.Hour},
			{"11:59", 12*time.Hour + 59*time.Minute},
			{"12:00", 13 * time.Hour},
		},
		"no such time": {{"99:99", 0}, {"99:99", 30 * time.Second}},
	} {
		var lines []irclog.Line
		var want []time.Duration
		for i, r := range rows {
			lines = append(lines, irclog.Parse(i+1, []byte("["+r.stamp+"] <ann> hello")))
			want = append(want, r.want)
		}
		if diff := cmp.Diff(want, irclog.Offsets(lines)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := irclog.Offsets(nil); len(got) != 0 {
		t.Errorf("no lines have the offsets %v", got)
	}
}

// FuzzParse checks that a server would accept every parsed message: an id as sender, text as
// content.
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
