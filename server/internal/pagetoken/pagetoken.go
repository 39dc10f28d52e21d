// Package pagetoken creates and checks the tokens with which a caller requests the next page of a
// list.
package pagetoken

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Binding is what a page token is valid for: the request for the next page must have the same
// Binding.
type Binding struct {
	// Call names the list. A token of one call is invalid in another.
	Call string
	// Subject is the subject that the token is for.
	Subject string
	// Epoch is the epoch of the log that is listed; empty if the list is not a log.
	Epoch string
	// Query holds the parameters that must not change between pages: a struct of plain fields,
	// compared by its JSON.
	Query any
}

// query returns a hash of the call and its query.
func (b *Binding) query() []byte {
	data, _ := json.Marshal(struct { //nolint:errchkjson // plain fields only
		Call  string `json:"c"`
		Query any    `json:"q"`
	}{b.Call, b.Query})
	sum := sha256.Sum256(data)
	return sum[:16]
}

// Sealer creates and opens page tokens. A token is JSON and its HMAC-SHA256, in URL-safe base64. A
// Sealer is safe for concurrent use.
type Sealer struct {
	secret []byte
}

// New returns a sealer. All nodes must use the same secret, or they refuse each other's tokens.
func New(secret []byte) Sealer { return Sealer{secret: secret} }

type token struct {
	Query   []byte `json:"q"`
	Subject string `json:"s"`
	Epoch   string `json:"e,omitempty"`
	Last    string `json:"l"`
}

func (s Sealer) mac(body []byte) []byte {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte("parley page token v1\x00"))
	m.Write(body)
	return m.Sum(nil)
}

// Seal returns the token of a list that continues after last, which must be UTF-8.
func (s Sealer) Seal(b *Binding, last string) string {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	// A user id may consist of characters that are escaped in HTML. At six characters for one, the
	// token could exceed the size that the API accepts.
	enc.SetEscapeHTML(false)
	_ = enc.Encode(token{b.query(), b.Subject, b.Epoch, last}) // cannot fail: plain fields, to memory
	return base64.RawURLEncoding.EncodeToString(append(s.mac(body.Bytes()), body.Bytes()...))
}

// Open returns the last of Seal, the position where the previous page ended. Its faults name the
// field page_token: PAGE_TOKEN_INVALID if text was not sealed with this secret or is for another
// query, PAGE_TOKEN_FOREIGN if it is for another subject, RESYNC if it is for another epoch.
func (s Sealer) Open(text string, b *Binding) (last string, err error) {
	refused := func(kind fault.Kind, reason fault.Reason, msg string) error {
		e := fault.New(kind, reason, "%s", msg)
		e.Field = "page_token"
		return e
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var t token
	// Base64 has several encodings of one value; only the canonical one is accepted.
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != text || len(raw) < sha256.Size ||
		!hmac.Equal(raw[:sha256.Size], s.mac(raw[sha256.Size:])) || json.Unmarshal(raw[sha256.Size:], &t) != nil {
		return "", refused(fault.InvalidArgument, fault.PageTokenInvalid, "page_token: not issued by this service")
	}
	switch {
	case t.Subject != b.Subject:
		return "", refused(fault.PermissionDenied, fault.PageTokenForeign, "page_token: issued to another subject")
	case !hmac.Equal(t.Query, b.query()):
		return "", refused(fault.InvalidArgument, fault.PageTokenInvalid, "page_token: issued for another query")
	case t.Epoch != b.Epoch:
		return "", refused(fault.FailedPrecondition, fault.Resync,
			"page_token: issued for another epoch of the log; list again from the start")
	}
	return t.Last, nil
}
