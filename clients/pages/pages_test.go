package pages_test

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/parleyhq/parley/clients/pages"
)

// TestPagesAreWhole checks that the built pages have no inline code, which their policy forbids,
// and that all files to which they refer exist.
func TestPagesAreWhole(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"index.html", "assistant.html", "queues.html"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isWhole(t, name)
		})
	}
}

func isWhole(t *testing.T, file string) {
	t.Helper()
	page := read(t, file)
	named := regexp.MustCompile(`(?:src|href)="/([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(named) < 3 {
		t.Errorf("%s names %d files, want script, style and icon", file, len(named))
	}
	for _, name := range named {
		if read(t, name[1]) == "" {
			t.Errorf("%s is empty", name[1])
		}
	}
	if !regexp.MustCompile(`<script type="module"[^>]* src="/assets/[^"]+"></script>`).MatchString(page) {
		t.Errorf("%s loads no module", file)
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style| style=| on[a-z]+=`).FindString(page); inline != "" {
		t.Errorf("%s has inline code: %q", file, inline)
	}
}

// TestSDKIsOneModule checks that parley.js exports the SDK and imports nothing, so that a page
// without a build step can import it.
func TestSDKIsOneModule(t *testing.T) {
	t.Parallel()
	code := read(t, "parley.js")
	exports := regexp.MustCompile(`export ?\{[^}]*\}`).FindString(code)
	for _, name := range []string{"Client", "ParleyError", "live", "fromStart", "after"} {
		if !regexp.MustCompile(`\bas ` + name + `\b`).MatchString(exports) {
			t.Errorf("parley.js does not export %s", name)
		}
	}
	if other := regexp.MustCompile(`(?m)^import\b.*|\bfrom ?["'][^"']+["'];|\bimport\(`).FindString(code); other != "" {
		t.Errorf("parley.js imports: %.80q", other)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := fs.ReadFile(pages.Files(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
