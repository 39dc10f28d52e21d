// Package link is the part of a parley.Client that the SDK's packages share: it picks nodes,
// carries tokens, retries calls and keeps streams up. Programs do not use it.
package link

import (
	"context"
	"log/slog"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// Services are the services of one node.
type Services struct {
	Message parleyv1connect.MessageServiceClient
	Queue   parleyv1connect.QueueServiceClient
	Admin   parleyv1connect.AdminServiceClient
	Server  parleyv1connect.ServerServiceClient
}

// Attempt makes one attempt of a call. It may run several times.
type Attempt func(ctx context.Context, s *Services) error

// Link is a client's access to its servers. It is safe for concurrent use. Its errors are
// *parley.Error or those of a context.
type Link interface { //nolint:interfacebloat // all that the packages share of a client
	// Call makes attempts until one succeeds, fails for good, or ctx ends, or the client's call
	// timeout if ctx has no deadline. The name is for the log.
	Call(ctx context.Context, name string, attempt Attempt) error
	// Retry is Call without the client's call timeout.
	Retry(ctx context.Context, name string, attempt Attempt) error
	// Deadline returns the context of a call: ctx if it has a deadline, else one that ends after
	// the client's call timeout.
	Deadline(ctx context.Context) (context.Context, context.CancelFunc)
	// Interrupted returns the error of a call whose context ended. last is the failure before that,
	// or nil.
	Interrupted(ctx context.Context, last error) error
	// Batch makes the call for the items with these indices, ascending: see Batch. The error is nil
	// if every item is done or was refused for good.
	Batch(ctx context.Context, b *Batch, items []int) error
	// Keep opens one stream after another until ctx ends or a failure is final, and returns what
	// ended it.
	Keep(ctx context.Context, k *Keep) error
	// Error converts an error of a generated client. It returns nil for nil.
	Error(err error) error
	// ItemError converts the error of an item. It returns nil for nil.
	ItemError(item *parleyv1.ItemError) error
	// WorthRetrying reports whether the same call may succeed later.
	WorthRetrying(err error) bool
	// Wait returns a random wait after a failure. failures is the number of failures before it.
	Wait(failures int, failure error) time.Duration
	// Patience returns how long an attempt may take.
	Patience() time.Duration
	// Log returns the client's logger.
	Log() *slog.Logger
}

var provided func(client any) Link

// Provide sets the function behind Of. Package parley calls it once, while it is initialized. It
// returns true, so that it can initialize a variable.
func Provide(of func(client any) Link) bool {
	provided = of
	return true
}

// Of returns the link of a *parley.Client. A function of this package rather than a method of the
// client keeps it out of the client's public API.
func Of(client any) Link { return provided(client) } //nolint:ireturn // the type is not exported

// Batch is a call on many items. They are sent in parts, one after another. Each part is the first
// items that are not settled, so that a repeated item never comes after an item that follows it. Of
// a part, only the items with a retryable failure are sent again.
type Batch struct {
	// Name is for the log.
	Name string
	// MaxItems and MaxBytes bound a part. One item is sent whatever its size.
	MaxItems, MaxBytes int
	// Unbounded turns the client's call timeout off.
	Unbounded bool
	// Size returns how much of a part an item takes.
	Size func(i int) int
	// Send makes one attempt for some items and returns one error for each, in order: nil for an
	// item that is done.
	Send func(ctx context.Context, s *Services, items []int) ([]*parleyv1.ItemError, error)
	// Failed, if set, is called with each retryable failure of an item.
	Failed func(i int, err error)
	// Settled is called once for each item: with nil if it is done.
	Settled func(i int, err error)
}

// Keep describes a stream that is kept up.
type Keep struct {
	// Name is for the log.
	Name string
	// Follow handles one stream's frames until it ends, and returns why. ctx ends when the stream
	// is to be left.
	Follow func(ctx context.Context, s Stream) error
	// Waiting is called with each wait before the next stream. err is nil if the server advised to
	// reconnect.
	Waiting func(addr string, wait time.Duration, err error)
}

// Stream is one stream in progress, as its watchdog sees it.
type Stream interface {
	// Services returns the services of the node on which to open the stream, and Addr its address.
	Services() *Services
	Addr() string
	// Live reports the first frame. From then on the stream counts as dead after 2.5 heartbeat
	// intervals of silence.
	Live(heartbeat time.Duration)
	// Busy reports that a frame has arrived, Idle that it was handled. The time between is not
	// silence.
	Busy()
	Idle()
	// Leave ends the stream for the given reason.
	Leave(err error)
}
