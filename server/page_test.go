package server_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/servertest"
)

// fetch sends a request as a browser does: over HTTP/1.1 and without a token.
func fetch(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// TestPageServesItsFiles checks that the server serves the chat page and every file that it names,
// as a browser loads them.
func TestPageServesItsFiles(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	resp, html := fetch(t, http.MethodGet, s.URL+"/")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "http://*.localhost:*") {
		t.Errorf("dev's page may not call other names of this machine: %s", policy)
	}
	for _, named := range regexp.MustCompile(`(?:src|href)="(/?[^":#]+)"`).FindAllStringSubmatch(html, -1) {
		url := s.URL + "/" + strings.TrimPrefix(strings.TrimPrefix(named[1], "."), "/")
		if resp, _ := fetch(t, http.MethodGet, url); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	if resp, body := fetch(t, http.MethodHead, s.URL+"/"); resp.StatusCode != http.StatusOK || body != "" {
		t.Errorf("HEAD: %s with %d bytes", resp.Status, len(body))
	}
	if resp, _ := fetch(t, http.MethodGet, s.URL+"/nothing.js"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("missing file: got %s", resp.Status)
	}
}

// TestSDKImportFromAllowedOrigin checks that a page of another origin may import the SDK if that
// origin may call the API.
func TestSDKImportFromAllowedOrigin(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.HTTP.CORSOrigins = []string{"https://app.example"} }))
	for origin, want := range map[string]string{"https://app.example": "https://app.example", "https://evil.example": ""} {
		resp, _ := fetch(t, http.MethodGet, s.URL+"/parley.js", "Origin", origin)
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%s: allowed origin is %q", origin, got)
		}
	}
}

// TestProcedurePathsAreNotServedAsPage checks that requests that are no GET of a page's file are
// answered as calls of unknown procedures. Without the page, all requests are.
func TestProcedurePathsAreNotServedAsPage(t *testing.T) {
	t.Parallel()
	on := servertest.Dev(t)
	off := servertest.Dev(t, servertest.With(func(c *config.Config) { c.HTTP.Page = false }))
	for _, tt := range []struct{ method, url string }{
		{http.MethodPost, on.URL + "/"},
		{http.MethodPost, on.URL + "/index.html"},
		{http.MethodPut, on.URL + "/parley.js"},
		{http.MethodGet, on.URL + "/parley.v1.Nothing/Get"},
		{http.MethodGet, on.URL + "/parley.v1.MessageService/"},
		{http.MethodGet, off.URL + "/"},
		{http.MethodGet, off.URL + "/parley.js"},
	} {
		resp, body := fetch(t, tt.method, tt.url, "Content-Type", "application/json")
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, `"code":"unimplemented"`) {
			t.Errorf("%s %s: %s %s", tt.method, tt.url, resp.Status, body)
		}
	}
}
