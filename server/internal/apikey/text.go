package apikey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"slices"
	"strings"
)

const (
	// prefix begins every API key, and no JWT: so that a key is recognized in a header, and by
	// scanners of source code.
	prefix = "parley_"
	// nonceBytes of an id are random, and tagBytes are an HMAC of them.
	nonceBytes, tagBytes = 6, 9
	idLength             = (nonceBytes + tagBytes) * 8 / 5
	secretBytes          = 32
)

var (
	idText     = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	secretText = base64.RawURLEncoding.Strict()
)

// Is reports whether a credential has the form of an API key, valid or not.
func Is(credential string) bool { return strings.HasPrefix(credential, prefix) }

// ids creates and recognizes the ids of one store's keys.
type ids struct{ secret []byte }

func (i ids) tag(nonce []byte) []byte {
	m := hmac.New(sha256.New, i.secret)
	m.Write([]byte("parley api key id v1\x00"))
	m.Write(nonce)
	return m.Sum(nil)[:tagBytes]
}

// fresh returns a new id.
func (i ids) fresh() string {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	return idText.EncodeToString(slices.Concat(nonce, i.tag(nonce)))
}

// issued reports whether an id may be one that fresh returned.
func (i ids) issued(id string) bool {
	if len(id) != idLength {
		return false
	}
	raw, err := idText.DecodeString(id)
	return err == nil && hmac.Equal(raw[nonceBytes:], i.tag(raw[:nonceBytes]))
}

// freshSecret returns the text of a new secret, and its digest.
func freshSecret() (text string, digest [32]byte) {
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // never fails
	return secretText.EncodeToString(raw), sha256.Sum256(raw)
}

// format returns the API key with this id and secret.
func format(id, secret string) string { return prefix + id + "_" + secret }

// parse returns the id and the digest of the secret of an API key. ok is false if text is not one.
func parse(text string) (id string, digest [32]byte, ok bool) {
	id, secret, ok := strings.Cut(strings.TrimPrefix(text, prefix), "_")
	if !ok || !Is(text) || len(secret) != secretText.EncodedLen(secretBytes) || strings.ContainsAny(secret, "\r\n") {
		return "", digest, false
	}
	raw, err := secretText.DecodeString(secret)
	if err != nil {
		return "", digest, false
	}
	return id, sha256.Sum256(raw), true
}
