// Package page serves the files of a built web page. It serves them to everyone, because a page
// holds no secrets, and with a policy under which browsers run only the page's own scripts.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Config configures a Page.
type Config struct {
	// Files are the files of the page. `/` serves index.html, and `/x` serves x.html, as does
	// `/x.html`. The names of files in assets/ must change with their content.
	Files fs.FS
	// Connect lists sources that the page's scripts may connect to besides its own origin, in the
	// syntax of a Content-Security-Policy.
	Connect []string
}

// Page serves files from memory. It is safe for concurrent use.
type Page struct {
	files  map[string]*file
	policy string
}

// file is one file in the forms in which it is served.
type file struct {
	plain, packed form
	contentType   string
	cacheControl  string
}

// form is the content of a file, plain or compressed. The compressed form is empty if compression
// gains too little.
type form struct {
	data []byte
	etag string
}

const (
	index = "index.html"
	// hashed is the directory of files whose names contain a hash of the content.
	hashed = "assets/"
	// A file is not compressed if it is smaller than packMin bytes, or would shrink by less than
	// 1/packGain.
	packMin, packGain = 1 << 10, 10
)

// New reads all files into memory and returns a page. It fails if index.html is missing.
func New(cfg Config) (*Page, error) {
	p := &Page{files: make(map[string]*file), policy: policy(cfg.Connect)}
	err := fs.WalkDir(cfg.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(cfg.Files, name)
		if err != nil {
			return err
		}
		f, err := newFile(name, data)
		if err != nil {
			return err
		}
		p.files["/"+name] = f
		if short, ok := strings.CutSuffix(name, ".html"); ok {
			p.files["/"+short] = f
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	first, ok := p.files["/"+index]
	if !ok {
		return nil, fmt.Errorf("the page has no %s", index)
	}
	p.files["/"] = first
	return p, nil
}

// policy returns a Content-Security-Policy. It lets the page load scripts, styles, images and a
// manifest from its own server, load images from data: URLs, connect to its own server and the
// sources in connect, and nothing else.
func policy(connect []string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; manifest-src 'self'; connect-src " +
		strings.Join(append([]string{"'self'"}, connect...), " ") +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func newFile(name string, data []byte) (*file, error) {
	f := &file{plain: newForm(data), contentType: contentType(name), cacheControl: "no-cache"}
	if strings.HasPrefix(name, hashed) {
		f.cacheControl = "public, max-age=31536000, immutable"
	}
	if len(data) < packMin {
		return f, nil
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if out.Len() < len(data)-len(data)/packGain {
		f.packed = newForm(out.Bytes())
	}
	return f, nil
}

func newForm(data []byte) form {
	sum := sha256.Sum256(data)
	return form{data, `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// contentTypes holds the types that are essential for a page. Other types are from the system's
// table, which may be wrong.
var contentTypes = map[string]string{
	".css":         "text/css; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".js":          "text/javascript; charset=utf-8",
	".svg":         "image/svg+xml",
	".webmanifest": "application/manifest+json",
}

func contentType(name string) string {
	extension := path.Ext(name)
	if t, ok := contentTypes[extension]; ok {
		return t
	}
	if t := mime.TypeByExtension(extension); t != "" {
		return t
	}
	return "application/octet-stream"
}

// ServeHTTP serves a file for GET and HEAD, or 404 if there is none. Other methods get 405.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Content-Security-Policy", p.policy)
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	f, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	sent := f.plain
	if f.packed.data != nil {
		head.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Values("Accept-Encoding")) {
			sent = f.packed
			head.Set("Content-Encoding", "gzip")
		}
	}
	head.Set("Content-Type", f.contentType)
	head.Set("Cache-Control", f.cacheControl)
	head.Set("ETag", sent.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(sent.data))
}

// acceptsGzip reports whether an Accept-Encoding accepts gzip. It is a list of codings with
// parameters; q=0 refuses a coding.
func acceptsGzip(fields []string) bool {
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			coding, parameters, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				q, _ := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
				return strings.Trim(q, "0.") != "" || q == ""
			}
		}
	}
	return false
}
