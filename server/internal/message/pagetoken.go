package message

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/parleyhq/parley/server/internal/fault"
)

// pageTokens seals and opens page tokens: JSON and its HMAC-SHA256, in URL-safe base64. A token is bound to the query
// that it continues, to the subject it was made for and to the log's epoch.
type pageTokens struct {
	secret []byte
}

type pageToken struct {
	Query   []byte `json:"q"`
	Subject string `json:"s"`
	Epoch   string `json:"e"`
	Last    int64  `json:"l"`
}

// queryID stands for what of a query must not change from page to page. The rest may: what a client was told grows
// while it pages, and a page may be smaller than the one before.
func queryID(q *ListQuery) []byte {
	b, _ := json.Marshal(struct { //nolint:errchkjson // plain fields only
		ChannelID string `json:"c"`
		After     *int64 `json:"a"`
		Before    *int64 `json:"b"`
	}{q.ChannelID, q.After, q.Before})
	sum := sha256.Sum256(b)
	return sum[:16]
}

func (t pageTokens) mac(body []byte) []byte {
	m := hmac.New(sha256.New, t.secret)
	m.Write([]byte("parley page token v1\x00"))
	m.Write(body)
	return m.Sum(nil)
}

func (t pageTokens) seal(subject, epoch string, q *ListQuery, last int64) string {
	body, _ := json.Marshal(pageToken{queryID(q), subject, epoch, last}) //nolint:errchkjson // plain fields only
	return base64.RawURLEncoding.EncodeToString(append(t.mac(body), body...))
}

// open gives the seq that the page before ended with.
func (t pageTokens) open(token, subject, epoch string, q *ListQuery) (int64, error) {
	invalid := func(kind fault.Kind, reason fault.Reason, text string) error {
		e := fault.New(kind, reason, "%s", text)
		e.Field = "page_token"
		return e
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	var p pageToken
	// Base64 has several spellings of one value; a token has one.
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != token || len(raw) < sha256.Size ||
		!hmac.Equal(raw[:sha256.Size], t.mac(raw[sha256.Size:])) || json.Unmarshal(raw[sha256.Size:], &p) != nil {
		return 0, invalid(fault.InvalidArgument, fault.PageTokenInvalid, "page_token was not given out by this service")
	}
	switch {
	case p.Subject != subject:
		return 0, invalid(fault.PermissionDenied, fault.PageTokenForeign, "page_token was given out to another subject")
	case !hmac.Equal(p.Query, queryID(q)):
		return 0, invalid(fault.InvalidArgument, fault.PageTokenInvalid, "page_token belongs to another query")
	case p.Epoch != epoch:
		return 0, invalid(fault.FailedPrecondition, fault.Resync,
			"page_token belongs to another epoch of the log: list anew")
	}
	return p.Last, nil
}
