package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocs checks that docs/api documents every service, method, message, field, enum and enum
// value.
func TestDocs(t *testing.T) {
	t.Parallel()
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root(), "docs", "api", name))
		if err != nil {
			t.Fatal(err)
		}
		return "\n" + string(text)
	}
	readme, messages, enums := page("README.md"), page("messages.md"), page("enums.md")
	section := func(text, heading string) string {
		_, text, ok := strings.Cut(text, "\n"+heading+"\n")
		if !ok {
			t.Errorf("no section %q", heading)
		}
		mark, _, _ := strings.Cut(heading, " ")
		text, _, _ = strings.Cut(text, "\n"+mark+" ")
		return text
	}
	has := func(text, part string) {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}

	for _, f := range api() {
		for s := range each(f.Services()) {
			service := section(readme, "## "+string(s.Name()))
			for m := range each(s.Methods()) {
				method := section(service, "### "+string(m.Name()))
				has(method, fmt.Sprintf("`/%s/%s`", s.FullName(), m.Name()))
				has(method, fmt.Sprintf("[%s](messages.md#%s)", m.Input().Name(), strings.ToLower(string(m.Input().Name()))))
				switch {
				case m.IsStreamingClient():
					has(method, "\n_The request and the response are streams.")
				case m.IsStreamingServer():
					has(method, "\n_The response is a stream.")
				}
			}
		}
		for m := range each(f.Messages()) {
			message := section(messages, "## "+string(m.Name()))
			for field := range each(m.Fields()) {
				has(message, fmt.Sprintf("\n| `%s` | %d | ", field.Name(), field.Number()))
			}
		}
		for e := range each(f.Enums()) {
			enum := section(enums, "## "+string(e.Name()))
			for v := range each(e.Values()) {
				has(enum, fmt.Sprintf("\n| `%s` | %d | ", v.Name(), v.Number()))
			}
		}
	}
}
