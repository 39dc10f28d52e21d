// Package pagetoken makes the tokens with which a caller asks for a list's next page.
package pagetoken

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Binding is what a token is good for, and nothing else.
type Binding struct {
	// Call names the list, so that no token of one call opens in another.
	Call string
	// Subject is whom the token is for.
	Subject string
	// Epoch is that of the log that is listed; empty where positions are in no log.
	Epoch string
	// Query is what must not change from page to page: a struct of plain fields, told apart by its JSON.
	Query any
}

// query stands for the call and its query.
func (b *Binding) query() []byte {
	data, _ := json.Marshal(struct { //nolint:errchkjson // plain fields only
		Call  string `json:"c"`
		Query any    `json:"q"`
	}{b.Call, b.Query})
	sum := sha256.Sum256(data)
	return sum[:16]
}

// Sealer seals and opens page tokens: JSON and its HMAC-SHA256, in URL-safe base64. Safe for concurrent use.
type Sealer struct {
	secret []byte
}

// New makes a sealer. Every node of a fleet has the same secret.
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

// Seal makes the token of a list that goes on after last, which is UTF-8.
func (s Sealer) Seal(b *Binding, last string) string {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	// A user id may be full of what HTML wants escaped: six letters for one would make the token longer than is taken back.
	enc.SetEscapeHTML(false)
	_ = enc.Encode(token{b.query(), b.Subject, b.Epoch, last}) // plain fields, to memory
	return base64.RawURLEncoding.EncodeToString(append(s.mac(body.Bytes()), body.Bytes()...))
}

// Open gives where the page before ended. Its faults name the field page_token: PAGE_TOKEN_INVALID for what was not
// sealed here or for another query, PAGE_TOKEN_FOREIGN for another subject's, RESYNC for one of another epoch.
func (s Sealer) Open(text string, b *Binding) (last string, err error) {
	refused := func(kind fault.Kind, reason fault.Reason, msg string) error {
		e := fault.New(kind, reason, "%s", msg)
		e.Field = "page_token"
		return e
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var t token
	// Base64 has several spellings of one value; a token has one.
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != text || len(raw) < sha256.Size ||
		!hmac.Equal(raw[:sha256.Size], s.mac(raw[sha256.Size:])) || json.Unmarshal(raw[sha256.Size:], &t) != nil {
		return "", refused(fault.InvalidArgument, fault.PageTokenInvalid, "page_token was not given out by this service")
	}
	switch {
	case t.Subject != b.Subject:
		return "", refused(fault.PermissionDenied, fault.PageTokenForeign, "page_token was given out to another subject")
	case !hmac.Equal(t.Query, b.query()):
		return "", refused(fault.InvalidArgument, fault.PageTokenInvalid, "page_token belongs to another query")
	case t.Epoch != b.Epoch:
		return "", refused(fault.FailedPrecondition, fault.Resync,
			"page_token belongs to another epoch of the log: list anew")
	}
	return t.Last, nil
}
