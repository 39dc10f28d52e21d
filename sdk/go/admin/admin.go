// Package admin erases users, revokes tokens and manages API keys. Package queue has the other
// calls for operators.
package admin

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// Erasure is a job that erases a user's messages and memberships. The proto files describe the
// fields.
type Erasure = parleyv1.Erasure

// State is how far the erasure of a user has come.
type State = parleyv1.ErasureState

// The states of an erasure.
const (
	// Running means that something of the user may still be read.
	Running State = parleyv1.ErasureState_ERASURE_STATE_RUNNING
	// Erased means that nothing of the user is left in the store and in the caches.
	Erased State = parleyv1.ErasureState_ERASURE_STATE_ERASED
	// Finished means that nothing is left in the event stream either.
	Finished State = parleyv1.ErasureState_ERASURE_STATE_FINISHED
)

// Admin makes calls for operators. Every call requires the capability `admin`: the action `read`
// for calls that change nothing, the action `write` for all other calls. Calls are retried until
// ctx or the call's deadline ends (see parley.WithCallTimeout). It is safe for concurrent use.
type Admin struct{ link link.Link }

// New returns an Admin that uses the client.
func New(c *parley.Client) *Admin { return &Admin{link: link.Of(c)} }

// EraseUser starts to erase a user's messages and memberships, and returns at once. requestID
// identifies the job: a repeat with the same one returns the same job, and with another user
// parley.ErrIdempotencyKeyReused. It must not be empty.
func (a *Admin) EraseUser(ctx context.Context, userID, requestID string) (erasure *Erasure, err error) {
	err = a.link.Call(ctx, "EraseUser", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: userID, RequestId: requestID})
		erasure = res.GetErasure()
		return err
	})
	return erasure, err
}

// Erasure returns a job. It returns parley.ErrErasureNotFound if there is none.
func (a *Admin) Erasure(ctx context.Context, requestID string) (erasure *Erasure, err error) {
	err = a.link.Call(ctx, "GetErasure", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.GetErasure(ctx, &parleyv1.GetErasureRequest{RequestId: requestID})
		erasure = res.GetErasure()
		return err
	})
	return erasure, err
}

// Erasures iterates over all jobs, ordered by their request ids. Each page is a call. If a call
// fails, the iteration ends with its error.
func (a *Admin) Erasures(ctx context.Context) iter.Seq2[*Erasure, error] {
	return link.Pages(func(token string) (page []*Erasure, next string, err error) {
		err = a.link.Call(ctx, "ListErasures", func(ctx context.Context, s *link.Services) error {
			res, err := s.Admin.ListErasures(ctx, &parleyv1.ListErasuresRequest{PageToken: token})
			page, next = res.GetErasures(), res.GetNextPageToken()
			return err
		})
		return page, next, err
	})
}

// Revocation says which tokens are refused. The proto files describe the fields.
type Revocation = parleyv1.Revocation

// RevokeSSID revokes all tokens with this `ssid`, also those that are issued later. reason is for
// Revocations; it may be empty and has at most 256 bytes.
//
// Within a second after it returns, every node refuses the tokens, and ends their streams, with
// parley.ErrTokenRevoked.
func (a *Admin) RevokeSSID(ctx context.Context, ssid, reason string) (*Revocation, error) {
	return a.revoke(ctx, &parleyv1.RevokeTokensRequest{Target: &parleyv1.RevokeTokensRequest_Ssid{Ssid: ssid}, Reason: reason})
}

// RevokeUser revokes, like RevokeSSID, the tokens of a user that were issued up to now.
func (a *Admin) RevokeUser(ctx context.Context, userID, reason string) (*Revocation, error) {
	return a.revoke(ctx, &parleyv1.RevokeTokensRequest{Target: &parleyv1.RevokeTokensRequest_UserId{UserId: userID}, Reason: reason})
}

func (a *Admin) revoke(ctx context.Context, req *parleyv1.RevokeTokensRequest) (revocation *Revocation, err error) {
	err = a.link.Call(ctx, "RevokeTokens", func(ctx context.Context, s *link.Services) error {
		res, err := s.Admin.RevokeTokens(ctx, req)
		revocation = res.GetRevocation()
		return err
	})
	return revocation, err
}

// Revocations iterates over the revocations that are kept. Each page is a call. If a call fails,
// the iteration ends with its error.
func (a *Admin) Revocations(ctx context.Context) iter.Seq2[*Revocation, error] {
	return link.Pages(func(token string) (page []*Revocation, next string, err error) {
		err = a.link.Call(ctx, "ListRevocations", func(ctx context.Context, s *link.Services) error {
			res, err := s.Admin.ListRevocations(ctx, &parleyv1.ListRevocationsRequest{PageToken: token})
			page, next = res.GetRevocations(), res.GetNextPageToken()
			return err
		})
		return page, next, err
	})
}
