package authn

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Mint signs a token with HS256 for a subject, valid from now for ttl, with the given capabilities. The secret is at
// least 32 bytes.
func Mint(secret []byte, subject string, ttl time.Duration, capabilities []ident.Capability) (string, error) {
	if len(secret) < 32 {
		return "", errors.New("the HS256 secret is shorter than 32 bytes")
	}
	if !validSubject.MatchString(subject) {
		return "", errors.New("a subject is 1 to 128 printable ASCII characters without spaces")
	}
	if ttl <= 0 {
		return "", errors.New("a token's life is longer than nothing")
	}
	byName := make(map[string][]ident.Action, len(capabilities))
	for _, c := range capabilities {
		name := "channel:" + c.Pattern
		byName[name] = append(byName[name], c.Actions...)
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": byName,
	}).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}
