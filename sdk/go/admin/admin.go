// Package admin erases users. Package queue has the other calls for operators.
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
