// Package link provides the part of a parley.Client that the SDK's packages share: it picks nodes,
// adds tokens, retries calls and keeps streams open. Programs do not use it.
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
	Message  parleyv1connect.MessageServiceClient
	Queue    parleyv1connect.QueueServiceClient
	Admin    parleyv1connect.AdminServiceClient
	Presence parleyv1connect.PresenceServiceClient
	Server   parleyv1connect.ServerServiceClient
}

// Attempt makes one attempt of a call. It may be called several times.
type Attempt func(ctx context.Context, s *Services) error

// Link is the connection to the servers of a client. It is safe for concurrent use. Its errors are
// *parley.Error or those of a context.
type Link interface { //nolint:interfacebloat // all that the packages share of a client
	// Call makes attempts until one succeeds, a failure is final, or ctx ends. If ctx has no
	// deadline, the client's call timeout applies. The name is for the log.
	Call(ctx context.Context, name string, attempt Attempt) error
	// Retry is Call without the client's call timeout.
	Retry(ctx context.Context, name string, attempt Attempt) error
	// Once makes one attempt, for a call that the server may answer after a wait. The attempt may take
	// that much longer than usual. If the token was refused, it makes another attempt with a new one.
	Once(ctx context.Context, wait time.Duration, attempt Attempt) error
	// Deadline returns the context of a call: ctx if it has a deadline, else one that ends after
	// the client's call timeout.
	Deadline(ctx context.Context) (context.Context, context.CancelFunc)
	// Interrupted returns the error of a call whose context ended. last is the failure before that,
	// or nil.
	Interrupted(ctx context.Context, last error) error
	// Batch makes the call for the items with these indices, which are ascending: see the type
	// Batch. The error is nil if every item is done or permanently refused.
	Batch(ctx context.Context, b *Batch, items []int) error
	// Keep opens one stream after another until ctx ends or a failure is final. It returns that
	// error.
	Keep(ctx context.Context, k *Keep) error
	// Error converts an error of a generated client to a *parley.Error. It returns nil for nil.
	Error(err error) error
	// ItemError converts the error of a batch item to a *parley.Error. It returns nil for nil.
	ItemError(item *parleyv1.ItemError) error
	// WorthRetrying reports whether the same call may succeed later.
	WorthRetrying(err error) bool
	// Wait returns a random wait after a failure. failures is the number of failures before it.
	Wait(failures int, failure error) time.Duration
	// AttemptTimeout returns the time limit of the first attempt of a call. Later attempts get more.
	AttemptTimeout() time.Duration
	// Log returns the client's logger.
	Log() *slog.Logger
}

var provided func(client any) Link

// Provide sets the function that Of calls. Package parley calls it once, during its initialization.
// It returns true, so that it can initialize a variable.
func Provide(of func(client any) Link) bool {
	provided = of
	return true
}

// Of returns the link of a *parley.Client. It is a function of this package rather than a method of
// the client, which keeps it out of the client's public API.
func Of(client any) Link { return provided(client) } //nolint:ireturn // the type is not exported

// Batch is a call on many items. They are sent in parts, one after another. Each part consists of
// the first items that are not settled, so that a repeated item never comes after a later one. Of a
// part, only the items with a retryable failure are sent again.
type Batch struct {
	// Name is the name of the call in the log.
	Name string
	// MaxItems and MaxBytes bound a part. A single item is sent regardless of its size.
	MaxItems, MaxBytes int
	// Unbounded disables the client's call timeout for this call.
	Unbounded bool
	// Size returns the size of an item, as counted for MaxBytes.
	Size func(i int) int
	// Send makes one attempt for some items. It returns one error for each item, in order, which is
	// nil if the item is done.
	Send func(ctx context.Context, s *Services, items []int) ([]*parleyv1.ItemError, error)
	// Failed, if set, is called with each failure that leaves an item unsettled: its own retryable
	// one, or that of the whole request.
	Failed func(i int, err error)
	// Settled is called once for each item, when its result is final. err is nil if the item is done.
	Settled func(i int, err error)
}

// Keep describes a stream that is reopened whenever it ends.
type Keep struct {
	// Name is the name of the stream in the log.
	Name string
	// Follow handles one stream's frames until it ends, and returns the reason. ctx ends when
	// Follow must leave the stream.
	Follow func(ctx context.Context, s Stream) error
	// Waiting is called with each wait before the next stream. err is nil if the server advised to
	// reconnect.
	Waiting func(addr string, wait time.Duration, err error)
}

// Stream is one stream to a node and its watchdog, which ends the stream after too long a silence.
type Stream interface {
	// Services returns the services of the node on which to open the stream, and Addr its address.
	Services() *Services
	Addr() string
	// Live must be called when the first frame arrives. From then on the stream counts as dead after
	// 2.5 heartbeat intervals without a frame. A heartbeat of 0 or less means 15 s.
	Live(heartbeat time.Duration)
	// Busy must be called when a frame has arrived, Idle when it was handled. The time between the two
	// calls does not count as silence.
	Busy()
	Idle()
	// Advise records that the server asked to reconnect within a time. Follow returns then, and its
	// error does not matter.
	Advise(within time.Duration)
	// Leave ends the stream for the given reason.
	Leave(err error)
}
