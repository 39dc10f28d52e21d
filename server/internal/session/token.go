package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/parleyhq/parley/server/internal/fault"
)

// macSize is how much of the HMAC-SHA256 an append token has.
const macSize = 16

// tokenText is strict: of all texts that decode to the same bytes it accepts only one.
var tokenText = base64.RawURLEncoding.Strict()

// appendToken is the right to append to the text of an open message. Its subject and its message
// are not in it but under its MAC: each call names them.
type appendToken struct {
	// seq is the seq of the message, and attempt is message.Delta.Attempt.
	seq, attempt int64
}

func (s *Service) tokenMAC(body []byte, subject, channelID, msgID string) []byte {
	m := hmac.New(sha256.New, s.cfg.Secret)
	m.Write([]byte("append token\x00" + subject + "\x00" + channelID + "\x00" + msgID + "\x00")) // none contains NUL
	m.Write(body)
	return m.Sum(nil)[:macSize]
}

func (s *Service) sealToken(t appendToken, subject, channelID, msgID string) string {
	body := binary.AppendVarint(binary.AppendVarint(nil, t.seq), t.attempt)
	return tokenText.EncodeToString(append(s.tokenMAC(body, subject, channelID, msgID), body...))
}

func (s *Service) openToken(text, subject, channelID, msgID string) (appendToken, error) {
	raw, err := tokenText.DecodeString(text)
	if err != nil || len(raw) < macSize || !hmac.Equal(raw[:macSize], s.tokenMAC(raw[macSize:], subject, channelID, msgID)) {
		return appendToken{}, fault.Invalid("append_token", 0, "append_token: was not issued for this message and subject")
	}
	seq, n := binary.Varint(raw[macSize:]) // sealToken wrote it: nobody else has the secret
	attempt, _ := binary.Varint(raw[macSize+n:])
	return appendToken{seq, attempt}, nil
}
