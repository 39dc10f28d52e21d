package rig

import (
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// everything has all capabilities.
var everything = map[string][]string{
	"*":       {"send", "history", "subscribe", "moderate", "send_as", "manage"},
	"queue:*": {"produce", "consume"},
	"admin":   {"read", "write"},
}

// Token signs a token for subject with HS256. The token is valid from now for ttl. The keys of capabilities are channel patterns,
// `queue:<pattern>` and `admin`; the values are the allowed actions. nil allows everything.
func Token(secret []byte, subject string, ttl time.Duration, capabilities map[string][]string) (string, error) {
	if capabilities == nil {
		capabilities = everything
	}
	claims := make(map[string][]string, len(capabilities))
	for name, actions := range capabilities {
		if !strings.HasPrefix(name, "queue:") && name != "admin" {
			name = "channel:" + name
		}
		claims[name] = actions
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": claims,
	}).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}
