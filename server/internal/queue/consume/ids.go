package consume

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	nonceBytes = 16
	// macBytes is how much of the HMAC-SHA256 a session id has: 128 bits cannot be guessed.
	macBytes = 16
	// maxIDBytes bounds session ids and delivery tokens; the schema has the same limit.
	maxIDBytes = 128
)

// idText is strict, so that only one text decodes to the bytes of an id.
var idText = base64.RawURLEncoding.Strict()

// SessionIDs creates and checks the ids of sessions. An id consists of random bytes, their MAC with
// the subject and the group, and the group. So every node of the fleet can check an id without
// knowing the session. Safe for concurrent use.
type SessionIDs struct{ secret []byte }

// NewSessionIDs returns the ids of a fleet whose nodes share secret.
func NewSessionIDs(secret []byte) SessionIDs { return SessionIDs{secret} }

// New returns the id of a new session.
func (s SessionIDs) New(subject, group string) string {
	id := make([]byte, nonceBytes, nonceBytes+macBytes)
	_, _ = rand.Read(id) // never fails
	return idText.EncodeToString(s.append(id, subject, group)) + "." + group
}

// Group returns the group of a session id. It reports false if the id is not one of this fleet, or
// belongs to another subject.
func (s SessionIDs) Group(id, subject string) (group string, ok bool) {
	text, group, found := strings.Cut(id, ".")
	// The decoder skips line breaks.
	if !found || len(id) > maxIDBytes || strings.ContainsAny(text, "\r\n") {
		return "", false
	}
	raw, err := idText.DecodeString(text)
	if err != nil || len(raw) != nonceBytes+macBytes {
		return "", false
	}
	want := s.append(raw[:nonceBytes:nonceBytes], subject, group)
	return group, hmac.Equal(raw, want)
}

// append appends the MAC of the nonce.
func (s SessionIDs) append(nonce []byte, subject, group string) []byte {
	m := hmac.New(sha256.New, s.secret)
	// The nonce has a fixed length and a group has no NUL, so that no two triples have the same bytes.
	m.Write([]byte("queue session\x00"))
	m.Write(nonce)
	m.Write([]byte(group + "\x00" + subject))
	return append(nonce, m.Sum(nil)[:macBytes]...)
}

// Digest returns a short name of a session for people, which is of no use in calls.
func Digest(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	return idText.EncodeToString(sum[:9])
}

// Token names one delivery of a message to a group. It is not secret: it counts only together with
// the id of the session that holds the delivery.
type Token struct {
	Topic     string
	Partition int
	ID        qlog.ID
	// Gen counts the deliveries of the message to the group.
	Gen int
}

func (t Token) partition() partition { return partition{t.Topic, t.Partition} }

// String returns the token as a consumer is given it: "<topic>.<partition>.<µs>.<gen>".
func (t Token) String() string {
	b := make([]byte, 0, maxIDBytes)
	b = append(append(b, t.Topic...), '.')
	b = append(strconv.AppendInt(b, int64(t.Partition), 10), '.')
	b = append(strconv.AppendInt(b, int64(t.ID), 10), '.')
	return string(strconv.AppendInt(b, int64(t.Gen), 10))
}

// ParseToken parses what String returns, and reports whether it is one.
func ParseToken(s string) (Token, bool) {
	parts := strings.SplitN(s, ".", 5)
	if len(parts) != 4 || len(s) > maxIDBytes || parts[0] == "" {
		return Token{}, false
	}
	partition, err1 := strconv.ParseUint(parts[1], 10, 16)
	id, err2 := strconv.ParseUint(parts[2], 10, 62)
	gen, err3 := strconv.ParseUint(parts[3], 10, 31)
	if err1 != nil || err2 != nil || err3 != nil || id == 0 || gen == 0 {
		return Token{}, false
	}
	t := Token{parts[0], int(partition), qlog.ID(id), int(gen)}
	// Only one text names a delivery: no leading zeros.
	return t, t.String() == s
}
