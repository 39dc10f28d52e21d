package rig

import (
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// allCapabilities are the capabilities of a token that allows everything.
var allCapabilities = map[string][]string{
	"*":         {"send", "history", "subscribe", "moderate", "send_as", "manage"},
	"session:*": {"append", "history", "subscribe", "send_as", "manage"},
	"queue:*":   {"produce", "consume"},
	"admin":     {"read", "write"},
	"presence":  {"connect", "watch", "list"},
}

// Token returns a token for subject, signed with HS256 and valid for ttl from now. The keys of
// capabilities are channel patterns such as "room-*", `member:<pattern>`, `session:<pattern>`,
// `queue:<pattern>`, `admin` and `presence`; the values are the allowed actions. nil allows
// everything.
func Token(secret []byte, subject string, ttl time.Duration, capabilities map[string][]string) (string, error) {
	return LoginToken(secret, subject, "", ttl, capabilities)
}

// LoginToken returns a token as Token does, of the login ssid: a sign-out or a revocation of it
// revokes all tokens with the same ssid. An empty ssid means none.
func LoginToken(secret []byte, subject, ssid string, ttl time.Duration, capabilities map[string][]string) (string, error) {
	if capabilities == nil {
		capabilities = allCapabilities
	}
	claims := make(map[string][]string, len(capabilities))
	for name, actions := range capabilities {
		if !strings.Contains(name, ":") && name != "admin" && name != "presence" {
			name = "channel:" + name
		}
		claims[name] = actions
	}
	now := time.Now()
	content := jwt.MapClaims{"sub": subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": claims}
	if ssid != "" {
		content["ssid"] = ssid
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, content).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}
