package queue

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"

	"github.com/parleyhq/parley/server/internal/fault"
)

// macLen is how much of the HMAC-SHA256 a token carries: 128 bits can't be guessed, and a token comes with every delivery.
const macLen = 16

// maxToken bounds what is decoded at all.
const maxToken = 128

// tokenText is strict: of all texts that decode to the same bytes only one holds.
var tokenText = base64.RawURLEncoding.Strict()

// tokenBody is what a delivery's token says. Session, topic and group are not in it but under its MAC: the call names them.
type tokenBody struct {
	partition int
	place     Place
	id        EntryID
	epoch     int64
	attempt   int
	// serial numbers the session's deliveries. A message that was released comes again with all the rest equal.
	serial uint64
}

// seal makes and checks the tokens of one session. It is for one goroutine at a time.
type seal struct{ mac hash.Hash }

// newSeal makes the seal of a session, whether or not it is of this node or still lives: a token of a session that is gone must
// still be told from a false one. The session's own key is derived once, so that a token costs one HMAC of a few bytes.
func newSeal(secret []byte, streamID, topic, group string) seal {
	m := hmac.New(sha256.New, secret)
	// The names hold no NUL, so no two triples read alike.
	m.Write([]byte("delivery\x00" + streamID + "\x00" + topic + "\x00" + group))
	return seal{hmac.New(sha256.New, m.Sum(nil))}
}

func (s seal) sum(body []byte) []byte {
	s.mac.Reset()
	s.mac.Write(body)
	return s.mac.Sum(nil)[:macLen]
}

// token writes a token.
func (s seal) token(t tokenBody) string {
	b := make([]byte, 0, maxToken)
	b = binary.AppendUvarint(b, uint64(t.partition)) //nolint:gosec // 0 to MaxPartitions
	b = append(b, byte(t.place))
	b = binary.AppendUvarint(b, t.id.MS)
	b = binary.AppendUvarint(b, t.id.Seq)
	b = binary.AppendUvarint(b, uint64(t.epoch))   //nolint:gosec // comes back as the same bits
	b = binary.AppendUvarint(b, uint64(t.attempt)) //nolint:gosec // never negative
	b = binary.AppendUvarint(b, t.serial)
	return tokenText.EncodeToString(append(b, s.sum(b)...))
}

// open reads a token back, if it is one of the session's.
func (s seal) open(text string) (t tokenBody, ok bool) {
	// The decoder passes over line breaks.
	if len(text) > maxToken || strings.ContainsAny(text, "\r\n") {
		return t, false
	}
	raw, err := tokenText.DecodeString(text)
	if err != nil || len(raw) < macLen {
		return t, false
	}
	body, mac := raw[:len(raw)-macLen], raw[len(raw)-macLen:]
	if !hmac.Equal(mac, s.sum(body)) {
		return t, false
	}
	// What follows was written by token: nobody else has the key.
	read := func() uint64 {
		n, size := binary.Uvarint(body)
		if size <= 0 {
			body = nil
			return 0
		}
		body = body[size:]
		return n
	}
	t.partition = int(read()) //nolint:gosec // see above
	if len(body) > 0 {
		t.place = Place(body[0])
		body = body[1:]
	}
	t.id = EntryID{MS: read(), Seq: read()}
	t.epoch = int64(read()) //nolint:gosec // see above
	t.attempt = int(read()) //nolint:gosec // see above
	t.serial = read()
	return t, true
}

// falseToken is the fault of an item whose token is none of the session's.
func falseToken() *fault.Error {
	e := fault.New(fault.InvalidArgument, fault.DeliveryTokenInvalid, "the token does not belong to a delivery of this stream")
	e.Field = "token"
	return e
}
