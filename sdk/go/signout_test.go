package parley_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestSignOut checks that a sign-out whose answer was lost succeeds, and that the client's
// subscription ends and does not go on with a new token of the source.
func TestSignOut(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var asked atomic.Int64
	c := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		if asked.Add(1) > 1 {
			return "", errors.New("the user has signed out")
		}
		return "ann", nil
	}))
	sub := c.Subscribe(testContext(t), parley.FromStart("room"))
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
		t.Fatal(err)
	}
	s.FaultTimes(1, "SignOut", parleytest.Fault{
		Applied: true, Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN),
	})
	if err := c.SignOut(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range sub.Events() {
	}
	if err := sub.Err(); !errors.Is(err, parley.ErrTokenRevoked) {
		t.Errorf("the subscription ended with %v", err)
	}
	if _, err := c.Send(testContext(t), "room", "hello again"); !errors.Is(err, parley.ErrTokenRevoked) {
		t.Errorf("send: %v", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the source was asked %d times", n)
	}
}
