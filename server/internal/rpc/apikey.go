package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// APIKeys manages API keys. *apikey.Keys implements it and documents the methods. The caller's
// capability has been checked.
type APIKeys interface {
	Create(ctx context.Context, d apikey.Draft) (apikey.Key, string, error)
	Holder(ctx context.Context, id string) (*ident.Principal, error)
	List(ctx context.Context, after string, n int) (keys []apikey.Key, more bool, err error)
	Rotate(ctx context.Context, id string, overlap time.Duration) (apikey.Key, string, error)
}

var _ APIKeys = (*apikey.Keys)(nil)

// maxKeyPage is the number of API keys in a page: with the longest capabilities it has half a MiB.
const maxKeyPage = 100

// CreateApiKey implements parleyv1connect.AdminServiceHandler.
//
//nolint:revive,staticcheck // the name in the schema
func (s *adminService) CreateApiKey(ctx context.Context, req *parleyv1.CreateApiKeyRequest) (*parleyv1.CreateApiKeyResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	grants := make(map[string][]ident.Action)
	for i, c := range req.GetCapabilities() {
		if _, ok := grants[c.GetName()]; ok {
			e := fault.New(fault.InvalidArgument, fault.InvalidField, "capabilities[%d].name: %s is there twice", i, c.GetName())
			e.Field = fmt.Sprintf("capabilities[%d].name", i)
			return nil, e
		}
		for _, action := range c.GetActions() {
			grants[c.GetName()] = append(grants[c.GetName()], ident.Action(action))
		}
	}
	key, credential, err := s.deps.APIKeys.Create(ctx, apikey.Draft{
		Name: req.GetName(), Subject: req.GetSubject(), Grants: grants, Life: req.GetLife().AsDuration(), CreatedBy: p.Subject,
	})
	if err != nil {
		return nil, err
	}
	s.deps.Telemetry.Logger.InfoContext(ctx, "an API key was created",
		"key_id", key.ID, "subject", key.Subject, "by", p.Subject, "with", p.Key)
	return &parleyv1.CreateApiKeyResponse{ApiKey: s.apiKeyToWire(&key), Credential: credential}, nil
}

// ListApiKeys implements parleyv1connect.AdminServiceHandler.
//
//nolint:revive,staticcheck // the name in the schema
func (s *adminService) ListApiKeys(ctx context.Context, req *parleyv1.ListApiKeysRequest) (*parleyv1.ListApiKeysResponse, error) {
	page, err := s.page(ctx, "api keys", nil)
	if err != nil {
		return nil, err
	}
	after, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	keys, more, err := s.deps.APIKeys.List(ctx, after, orDefault(req.GetPageSize(), maxKeyPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListApiKeysResponse{}
	for i := range keys {
		resp.ApiKeys = append(resp.ApiKeys, s.apiKeyToWire(&keys[i]))
	}
	if more && len(keys) > 0 {
		resp.NextPageToken = page.seal(keys[len(keys)-1].ID)
	}
	return resp, nil
}

// RotateApiKey implements parleyv1connect.AdminServiceHandler.
//
//nolint:revive,staticcheck // the name in the schema
func (s *adminService) RotateApiKey(ctx context.Context, req *parleyv1.RotateApiKeyRequest) (*parleyv1.RotateApiKeyResponse, error) {
	overlap := apikey.DefaultOverlap
	if req.GetOverlap() != nil {
		overlap = req.GetOverlap().AsDuration()
	}
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	key, credential, err := s.deps.APIKeys.Rotate(ctx, req.GetKeyId(), overlap)
	if err != nil {
		return nil, err
	}
	s.deps.Telemetry.Logger.InfoContext(ctx, "an API key has a new secret", "key_id", key.ID, "by", p.Subject, "with", p.Key)
	return &parleyv1.RotateApiKeyResponse{ApiKey: s.apiKeyToWire(&key), Credential: credential}, nil
}

// RevokeApiKey implements parleyv1connect.AdminServiceHandler.
//
//nolint:revive,staticcheck // the name in the schema
func (s *adminService) RevokeApiKey(ctx context.Context, req *parleyv1.RevokeApiKeyRequest) (*parleyv1.RevokeApiKeyResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	holder, err := s.deps.APIKeys.Holder(ctx, req.GetKeyId())
	if err != nil {
		return nil, err
	}
	e, err := s.deps.Revocations.Revoke(ctx, revocation.Entry{Key: holder.Key, By: p.Subject, Reason: req.GetReason()}, holder)
	if err != nil {
		return nil, err
	}
	s.deps.Telemetry.Logger.InfoContext(ctx, "an API key was revoked", "key_id", req.GetKeyId(), "by", p.Subject)
	return &parleyv1.RevokeApiKeyResponse{Revocation: revocationToWire(&e)}, nil
}

func (s *adminService) apiKeyToWire(k *apikey.Key) *parleyv1.ApiKey {
	w := &parleyv1.ApiKey{
		KeyId: k.ID, Name: k.Name, Subject: k.Subject, State: parleyv1.ApiKeyState_API_KEY_STATE_ACTIVE,
		CreateTime: timestamppb.New(k.Created), CreatedBy: k.CreatedBy, ExpireTime: timestamppb.New(k.Expires),
	}
	for _, name := range slices.Sorted(maps.Keys(k.Grants)) {
		c := &parleyv1.Capability{Name: name}
		for _, action := range k.Grants[name] {
			c.Actions = append(c.Actions, string(action))
		}
		w.Capabilities = append(w.Capabilities, c)
	}
	if !k.LastUsed.IsZero() {
		w.LastUseTime = timestamppb.New(k.LastUsed)
	}
	now := time.Now()
	var last time.Time // the end of the old secrets
	for i := range k.Secrets {
		if until := k.Secrets[i].Until; until.After(now) && until.After(last) {
			last = until
			w.OldSecretExpireTime = timestamppb.New(last)
		}
	}
	switch {
	case !now.Before(k.Expires):
		w.State = parleyv1.ApiKeyState_API_KEY_STATE_EXPIRED
	case s.deps.Revocations.Revoked(ident.APIKeyKey(k.ID)):
		w.State = parleyv1.ApiKeyState_API_KEY_STATE_REVOKED
	}
	return w
}
