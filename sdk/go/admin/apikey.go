package admin

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// APIKey describes an API key, a credential of a server, without its secrets. The proto files
// describe the fields.
type APIKey = parleyv1.ApiKey

// Capability allows actions, as an entry of the claim `cap` of a token does. The proto files
// describe the fields.
type Capability = parleyv1.Capability

// APIKeyState says whether an API key is accepted.
type APIKeyState = parleyv1.ApiKeyState

// The states of an API key.
const (
	Active  APIKeyState = parleyv1.ApiKeyState_API_KEY_STATE_ACTIVE
	Revoked APIKeyState = parleyv1.ApiKeyState_API_KEY_STATE_REVOKED
	Expired APIKeyState = parleyv1.ApiKeyState_API_KEY_STATE_EXPIRED
)

// NewAPIKey is what CreateAPIKey creates.
type NewAPIKey struct {
	// Name says what the key is for, in 1 to 128 bytes.
	Name string
	// Subject is the user id in whose name the holder calls.
	Subject string
	// Capabilities are 1 to 100 with different names.
	Capabilities []*Capability
	// Life is how long the key is valid: 1 minute to 1830 days. 0 means 365 days.
	Life time.Duration
}

// CreateAPIKey creates an API key. credential is what the server passes to parley.WithToken. No
// later call returns it. A call that fails may have created a key, which nobody can use; a repeat
// creates another one. APIKeys shows both.
func (a *Admin) CreateAPIKey(ctx context.Context, n NewAPIKey) (key *APIKey, credential string, err error) {
	req := &parleyv1.CreateApiKeyRequest{Name: n.Name, Subject: n.Subject, Capabilities: n.Capabilities}
	if n.Life != 0 {
		req.Life = durationpb.New(n.Life)
	}
	err = a.link.Call(ctx, "CreateApiKey", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.CreateApiKey(ctx, req)
		key, credential = res.GetApiKey(), res.GetCredential()
		return err
	})
	return key, credential, err
}

// APIKeys iterates over all API keys, ordered by their ids. Each page is a call. If a call fails,
// the iteration ends with its error.
func (a *Admin) APIKeys(ctx context.Context) iter.Seq2[*APIKey, error] {
	return link.Pages(func(token string) (page []*APIKey, next string, err error) {
		err = a.link.Call(ctx, "ListApiKeys", func(ctx context.Context, s *link.Services) error {
			res, err := s.Admin.ListApiKeys(ctx, &parleyv1.ListApiKeysRequest{PageToken: token})
			page, next = res.GetApiKeys(), res.GetNextPageToken()
			return err
		})
		return page, next, err
	})
}

// RotateAPIKey adds a new secret to an API key and returns it in credential, as CreateAPIKey does.
// The secrets of before stay valid for overlap, at most 90 days; 0 ends them at once. It returns
// parley.ErrAPIKeyNotFound if there is no such key. A call that fails may have added a secret,
// which nobody can use; a repeat adds another one.
func (a *Admin) RotateAPIKey(ctx context.Context, keyID string, overlap time.Duration) (key *APIKey, credential string, err error) {
	req := &parleyv1.RotateApiKeyRequest{KeyId: keyID, Overlap: durationpb.New(overlap)}
	err = a.link.Call(ctx, "RotateApiKey", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.RotateApiKey(ctx, req)
		key, credential = res.GetApiKey(), res.GetCredential()
		return err
	})
	return key, credential, err
}

// RevokeAPIKey revokes an API key, like RevokeSSID. It returns parley.ErrAPIKeyNotFound if there is
// no such key.
func (a *Admin) RevokeAPIKey(ctx context.Context, keyID, reason string) (revocation *Revocation, err error) {
	err = a.link.Call(ctx, "RevokeApiKey", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.RevokeApiKey(ctx, &parleyv1.RevokeApiKeyRequest{KeyId: keyID, Reason: reason})
		revocation = res.GetRevocation()
		return err
	})
	return revocation, err
}
