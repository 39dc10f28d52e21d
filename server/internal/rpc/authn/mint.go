package authn

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Mint signs a token with HS256 that speaks for p, valid from now for ttl, whatever p.Expires says. The secret is at least
// 32 bytes.
func Mint(secret []byte, p *ident.Principal, ttl time.Duration) (string, error) {
	if len(secret) < 32 {
		return "", errors.New("the HS256 secret is shorter than 32 bytes")
	}
	if !validSubject.MatchString(p.Subject) {
		return "", errors.New("a subject is 1 to 128 printable ASCII characters without spaces")
	}
	if ttl <= 0 {
		return "", errors.New("a token's life is longer than nothing")
	}
	now := time.Now()
	claims := jwt.MapClaims{"sub": p.Subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": capabilityClaims(p)}
	if p.Session != "" {
		claims["ssid"] = p.Session
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}

// capabilityClaims gives the claim `cap`.
func capabilityClaims(p *ident.Principal) map[string]any {
	actions := make(map[string][]ident.Action, len(p.Channels)+len(p.Queues))
	add := func(prefix string, capabilities []ident.Capability) {
		for _, c := range capabilities {
			actions[prefix+c.Pattern] = append(actions[prefix+c.Pattern], c.Actions...)
		}
	}
	add(channelPrefix, p.Channels)
	add(queuePrefix, p.Queues)
	out := make(map[string]any, len(actions)+1)
	for name, list := range actions {
		out[name] = list
	}
	if p.Admin {
		out[adminName] = true
	}
	return out
}
