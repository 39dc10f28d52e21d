package authn

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Mint returns a token for p, signed with HS256 and valid from now for ttl; p.Expires is ignored.
// It fails if the secret is shorter than 32 bytes, the subject is invalid, ttl is not positive, or
// a capability has an action that its kind does not have.
func Mint(secret []byte, p *ident.Principal, ttl time.Duration) (string, error) {
	if len(secret) < minSecretBytes {
		return "", errors.New("the HS256 secret is shorter than 32 bytes")
	}
	if !ident.ValidUser(p.Subject) {
		return "", errors.New("the subject must be 1 to 128 printable ASCII characters without spaces, and not " + ident.ErasedUser)
	}
	if ttl <= 0 {
		return "", errors.New("the ttl must be positive")
	}
	if err := p.CheckActions(); err != nil {
		return "", err
	}
	now := time.Now()
	claims := jwt.MapClaims{"sub": p.Subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": p.CapabilityClaim()}
	if p.SSID != "" {
		claims["ssid"] = p.SSID
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}
