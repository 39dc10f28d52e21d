package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/admin"
)

type signOutCommand struct{}

// Run revokes the token of the command.
func (c *signOutCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.SignOut(ctx); err != nil {
			return explain("sign-out", err)
		}
		return nil
	})
}

type revokeCommand struct {
	SSID   string `name:"ssid" xor:"target" required:"" help:"Revoke all tokens with this ssid." placeholder:"SSID"`
	User   string `xor:"target" required:"" help:"Revoke the tokens of this user that were issued up to now." placeholder:"USER"`
	Reason string `help:"Why, for the list of revocations." placeholder:"TEXT"`
}

// Run revokes tokens.
func (c *revokeCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		a := admin.New(client)
		revoke, target := a.RevokeSSID, c.SSID
		if c.User != "" {
			revoke, target = a.RevokeUser, c.User
		}
		r, err := revoke(ctx, target, c.Reason)
		if err != nil {
			return explain("revoke", err)
		}
		return printRevocation(s, r)
	})
}

type revocationsCommand struct{}

// Run lists the revocations.
func (c *revocationsCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		for r, err := range admin.New(client).Revocations(ctx) {
			if err != nil {
				return explain("revocations", err)
			}
			if err := printRevocation(s, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// revocationJSON is the JSON form of a revocation.
type revocationJSON struct {
	SSID        string `json:"ssid,omitempty"`
	UserID      string `json:"user_id,omitempty"`
	TokenDigest string `json:"token_digest,omitempty"`
	APIKeyID    string `json:"api_key_id,omitempty"`
	RevokeTime  string `json:"revoke_time"`
	RevokedBy   string `json:"revoked_by"`
	Reason      string `json:"reason,omitempty"`
	ExpireTime  string `json:"expire_time"`
}

func printRevocation(s *session, r *admin.Revocation) error {
	out := revocationJSON{
		SSID: r.GetSsid(), UserID: r.GetUserId(), TokenDigest: r.GetTokenDigest(), APIKeyID: r.GetApiKeyId(),
		RevokeTime: r.GetRevokeTime().AsTime().Format(time.RFC3339Nano), RevokedBy: r.GetRevokedBy(), Reason: r.GetReason(),
		ExpireTime: r.GetExpireTime().AsTime().Format(time.RFC3339Nano),
	}
	what := "token " + out.TokenDigest
	switch {
	case out.SSID != "":
		what = "ssid " + out.SSID
	case out.APIKeyID != "":
		what = "API key " + out.APIKeyID
	case out.UserID != "":
		what = "user " + out.UserID
	}
	return s.printer().print(out, fmt.Sprintf("%s: revoked %s by %s until %s  %s", what, out.RevokeTime, out.RevokedBy, out.ExpireTime,
		cmp.Or(out.Reason, "(no reason)")))
}
