package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// Revocations knows which tokens were revoked. *revocation.List implements it and documents the
// methods.
type Revocations interface {
	Check(ctx context.Context, p *ident.Principal) error
	Unstored(p *ident.Principal) bool
	Revoked(key string) bool
	Watch(p *ident.Principal, end func(error)) *revocation.Stream
	Revoke(ctx context.Context, e revocation.Entry, p *ident.Principal) (revocation.Entry, error)
	Entries(ctx context.Context, after string, limit int) ([]revocation.Entry, error)
}

var _ Revocations = (*revocation.List)(nil)

// SignOut implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) SignOut(ctx context.Context, _ *parleyv1.SignOutRequest) (*parleyv1.SignOutResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.deps.Revocations.Revoke(ctx, revocation.Entry{Key: p.Key, By: p.Subject}, p); err != nil {
		return nil, err
	}
	return &parleyv1.SignOutResponse{}, nil
}

// leaveWait bounds the end of a presence in leaveIfEnded.
const leaveWait = 2 * time.Second

// leaveIfEnded ends the presence of a stream at once if the stream has ended because its token was
// revoked, or by KickUser. Otherwise the user would be shown online for `offline_after`.
func (s *presenceService) leaveIfEnded(ctx context.Context, streamID string) {
	if why := context.Cause(ctx); !fault.Is(why, fault.TokenRevoked) && !fault.Is(why, fault.Kicked) {
		return
	}
	p := ident.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if err := s.deps.PresenceCalls.Disconnect(ctx, streamID, p.Subject); err != nil {
		s.deps.Telemetry.Logger.DebugContext(ctx, "ending the presence of an ended stream failed", attrError(err))
	}
}

// RevokeTokens implements parleyv1connect.AdminServiceHandler.
func (s *adminService) RevokeTokens(ctx context.Context, req *parleyv1.RevokeTokensRequest) (*parleyv1.RevokeTokensResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	e := revocation.Entry{Key: revocation.UserKey(req.GetUserId()), By: p.Subject, Reason: req.GetReason()}
	if ssid := req.GetSsid(); ssid != "" {
		e.Key = ident.SSIDKey(ssid)
	}
	if e, err = s.deps.Revocations.Revoke(ctx, e, nil); err != nil {
		return nil, err
	}
	return &parleyv1.RevokeTokensResponse{Revocation: revocationToWire(&e)}, nil
}

// ListRevocations implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListRevocations(ctx context.Context, req *parleyv1.ListRevocationsRequest,
) (*parleyv1.ListRevocationsResponse, error) {
	page, err := s.page(ctx, "revocations", nil)
	if err != nil {
		return nil, err
	}
	after, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	limit := orDefault(req.GetPageSize(), defaultPage)
	entries, err := s.deps.Revocations.Entries(ctx, after, limit)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store did not answer: retry later")
	}
	resp := &parleyv1.ListRevocationsResponse{}
	for i := range entries {
		if !entries[i].Until.After(time.Now()) {
			continue // the store has not removed it yet
		}
		resp.Revocations = append(resp.Revocations, revocationToWire(&entries[i]))
	}
	if len(entries) == limit {
		resp.NextPageToken = page.seal(entries[limit-1].Key)
	}
	return resp, nil
}

func revocationToWire(e *revocation.Entry) *parleyv1.Revocation {
	w := &parleyv1.Revocation{
		RevokeTime: timestamppb.New(e.At), RevokedBy: e.By, Reason: e.Reason, ExpireTime: timestamppb.New(e.Until),
	}
	kind, rest, _ := strings.Cut(e.Key, ":")
	switch kind {
	case "s":
		w.Target = &parleyv1.Revocation_Ssid{Ssid: rest}
	case "k":
		w.Target = &parleyv1.Revocation_ApiKeyId{ApiKeyId: rest}
	case "u":
		w.Target = &parleyv1.Revocation_UserId{UserId: rest}
	default:
		w.Target = &parleyv1.Revocation_TokenDigest{TokenDigest: rest}
	}
	return w
}
