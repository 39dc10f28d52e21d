package authn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Mint returns a token for p, signed with HS256 and valid from now for ttl; p.Expires is ignored.
// It fails if the secret is shorter than 32 bytes, the subject is invalid, ttl is not positive, or
// a capability has an action that its kind does not have.
func Mint(secret []byte, p *ident.Principal, ttl time.Duration) (string, error) {
	if len(secret) < 32 {
		return "", errors.New("the HS256 secret is shorter than 32 bytes")
	}
	if !validSubject(p.Subject) {
		return "", errors.New("the subject must be 1 to 128 printable ASCII characters without spaces, and not " + erasedUser)
	}
	if ttl <= 0 {
		return "", errors.New("the ttl must be positive")
	}
	if err := checkActions(p); err != nil {
		return "", err
	}
	now := time.Now()
	claims := jwt.MapClaims{"sub": p.Subject, "iat": now.Unix(), "exp": now.Add(ttl).Unix(), "cap": capabilityClaims(p)}
	if p.SSID != "" {
		claims["ssid"] = p.SSID
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}

// memberActions are the actions that a capability of memberPrefix can allow.
var memberActions = slices.DeleteFunc(slices.Clone(ident.ChannelActions), func(a ident.Action) bool { return a == ident.SendAs })

// checkActions returns an error for the first unknown action in p's capabilities. A token with it
// would seem to allow something.
func checkActions(p *ident.Principal) error {
	for _, kind := range []struct {
		prefix       string
		capabilities []ident.Capability
		known        []ident.Action
	}{
		{channelPrefix, p.Channels, ident.ChannelActions},
		{memberPrefix, p.Members, memberActions},
		{sessionPrefix, p.Sessions, ident.SessionActions},
		{queuePrefix, p.Queues, ident.QueueActions},
	} {
		for _, c := range kind.capabilities {
			if err := checkKnown(kind.prefix+c.Pattern, c.Actions, kind.known); err != nil {
				return err
			}
		}
	}
	if err := checkKnown(presenceName, p.Presence, ident.PresenceActions); err != nil {
		return err
	}
	return checkKnown(adminName, p.Admin, ident.AdminActions)
}

// checkKnown returns an error for the first of the actions that is not in known. The error lists
// known.
func checkKnown(capability string, actions, known []ident.Action) error {
	for _, action := range actions {
		if slices.Contains(known, action) {
			continue
		}
		names := make([]string, len(known))
		for i, a := range known {
			names[i] = string(a)
		}
		return fmt.Errorf("capability %q: unknown action %q, must be one of %s", capability, action, strings.Join(names, ", "))
	}
	return nil
}

// capabilityClaims returns the value of the claim `cap` for p.
func capabilityClaims(p *ident.Principal) map[string]any {
	actions := make(map[string][]ident.Action, len(p.Channels)+len(p.Members)+len(p.Sessions)+len(p.Queues))
	add := func(prefix string, capabilities []ident.Capability) {
		for _, c := range capabilities {
			actions[prefix+c.Pattern] = append(actions[prefix+c.Pattern], c.Actions...)
		}
	}
	add(channelPrefix, p.Channels)
	add(memberPrefix, p.Members)
	add(sessionPrefix, p.Sessions)
	add(queuePrefix, p.Queues)
	out := make(map[string]any, len(actions)+2)
	for name, list := range actions {
		out[name] = list
	}
	if len(p.Presence) > 0 {
		out[presenceName] = p.Presence
	}
	if len(p.Admin) > 0 {
		out[adminName] = p.Admin
	}
	return out
}
