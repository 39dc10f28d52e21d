package page_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/parleyhq/parley/server/internal/page"
)

var script = strings.Repeat("export const x = 1;\n", 200)

func newPage(t *testing.T) *page.Page {
	t.Helper()
	p, err := page.New(page.Config{Connect: []string{"http://*.localhost:*"}, Files: fstest.MapFS{
		"index.html":          {Data: []byte("<!doctype html><title>p</title>")},
		"second.html":         {Data: []byte("<!doctype html><title>q</title>")},
		"parley.js":           {Data: []byte(script)},
		"assets/main-ab12.js": {Data: []byte(script)},
		"assets/main-ab12.css": {
			Data: []byte("body{}"),
		},
		"favicon.svg": {Data: []byte("<svg/>")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(t *testing.T, h http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	const forever, ask = "public, max-age=31536000, immutable", "no-cache"
	for path, want := range map[string]struct{ contentType, cache, content string }{
		"/":                     {"text/html; charset=utf-8", ask, "<!doctype html><title>p</title>"},
		"/index.html":           {"text/html; charset=utf-8", ask, "<!doctype html><title>p</title>"},
		"/second":               {"text/html; charset=utf-8", ask, "<!doctype html><title>q</title>"},
		"/second.html":          {"text/html; charset=utf-8", ask, "<!doctype html><title>q</title>"},
		"/parley.js":            {"text/javascript; charset=utf-8", ask, script},
		"/assets/main-ab12.js":  {"text/javascript; charset=utf-8", forever, script},
		"/assets/main-ab12.css": {"text/css; charset=utf-8", forever, "body{}"},
		"/favicon.svg":          {"image/svg+xml", ask, "<svg/>"},
	} {
		resp := get(t, p, http.MethodGet, path)
		h := resp.Header
		if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != want.contentType || h.Get("Cache-Control") != want.cache {
			t.Errorf("%s: %d %v", path, resp.StatusCode, h)
		}
		if got := body(t, resp.Body); got != want.content {
			t.Errorf("%s: %q", path, got)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" || h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "connect-src 'self' http://*.localhost:*; ") ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; ") {
			t.Errorf("%s: %v", path, h)
		}
		again := get(t, p, http.MethodGet, path, "If-None-Match", h.Get("Etag"))
		if again.StatusCode != http.StatusNotModified || body(t, again.Body) != "" {
			t.Errorf("%s again: %d", path, again.StatusCode)
		}
		head := get(t, p, http.MethodHead, path)
		if head.StatusCode != http.StatusOK || body(t, head.Body) != "" || head.Header.Get("Etag") != h.Get("Etag") {
			t.Errorf("HEAD %s: %d %v", path, head.StatusCode, head.Header)
		}
	}
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	for accept, want := range map[string]bool{
		"gzip, deflate, br": true, "br;q=1.0, GZIP;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "br": false, "": false,
	} {
		resp := get(t, p, http.MethodGet, "/parley.js", "Accept-Encoding", accept)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: compressed %v, want %v", accept, got, want)
			continue
		}
		var content io.Reader = resp.Body
		if want {
			unpacked, err := gzip.NewReader(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			content = unpacked
		}
		if got := body(t, content); got != script {
			t.Errorf("%q: %d bytes, want %d", accept, len(got), len(script))
		}
		if resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: Vary is %q", accept, resp.Header.Get("Vary"))
		}
		again := get(t, p, http.MethodGet, "/parley.js", "Accept-Encoding", accept, "If-None-Match", resp.Header.Get("Etag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%q again: %d", accept, again.StatusCode)
		}
	}
	if got := get(t, p, http.MethodGet, "/favicon.svg", "Accept-Encoding", "gzip").Header.Get("Content-Encoding"); got != "" {
		t.Errorf("a small file is sent as %s", got)
	}
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	for _, path := range []string{"/nothing", "/assets", "/assets/", "/assets/../index.html", "//index.html", "/index.html/", "/second/", "/parley"} {
		if resp := get(t, p, http.MethodGet, path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if resp := get(t, p, http.MethodPut, "/"); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("PUT: %d %v", resp.StatusCode, resp.Header)
	}
	if _, err := page.New(page.Config{Files: fstest.MapFS{"main.js": {}}}); err == nil {
		t.Error("a page without index.html was accepted")
	}
}
