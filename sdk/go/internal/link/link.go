// Package link is what a parley.Client does for every service alike: it picks nodes, carries tokens, repeats calls and keeps
// streams up. The SDK's packages share it; programs have no use for it.
package link

import (
	"context"
	"log/slog"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// Services are one node's.
type Services struct {
	Message parleyv1connect.MessageServiceClient
	Queue   parleyv1connect.QueueServiceClient
	Admin   parleyv1connect.AdminServiceClient
}

// Attempt makes one attempt of a call. It may run several times.
type Attempt func(ctx context.Context, s *Services) error

// Link is a client's way to its servers. Safe for concurrent use. Its errors are *parley.Error or those of a context.
type Link interface {
	// Retry makes attempts until one succeeds, fails for good, or ctx ends. The name is for the log.
	Retry(ctx context.Context, name string, attempt Attempt) error
	// Batch makes the call for the items of these indices, ascending: see Batch. The error is nil if every item is done or was
	// refused for good.
	Batch(ctx context.Context, b *Batch, items []int) error
	// Keep makes one stream after another until ctx ends or a failure is final, and gives what ended it.
	Keep(ctx context.Context, k *Keep) error
	// Error makes an error of what a generated client gave; nil of nil.
	Error(err error) error
	// ItemError makes an error of an item's; nil of nil.
	ItemError(item *parleyv1.ItemError) error
	// WorthRetrying reports whether the same call may succeed later.
	WorthRetrying(err error) bool
	// Wait draws the wait after a failure, with so many before it.
	Wait(failures int, failure error) time.Duration
	// Patience is how long an attempt may take.
	Patience() time.Duration
	// Log is where to tell of trouble.
	Log() *slog.Logger
}

// Batch is a call on many items. They go in parts, one after another; each part is the first that is not settled, so that
// what is repeated never comes after what follows it. Of a part, what failed and may pass is sent again, and only that.
type Batch struct {
	// Name is for the log.
	Name string
	// MaxItems and MaxBytes bound a part; one item goes whatever its size.
	MaxItems, MaxBytes int
	// Size is how much of a part an item takes.
	Size func(i int) int
	// Send makes one attempt for some items and answers an error for each, in order; nil if it is done.
	Send func(ctx context.Context, s *Services, items []int) ([]*parleyv1.ItemError, error)
	// Settled is told what became of each item, once: nil if it is done.
	Settled func(i int, err error)
}

// Keep is a stream that is to be kept up.
type Keep struct {
	// Name is for the log.
	Name string
	// Follow takes one stream's frames until it ends, and gives why. ctx ends when the stream is to be left.
	Follow func(ctx context.Context, s Stream) error
	// Waiting is told of each wait before the next stream. err is nil where the server advised to reconnect.
	Waiting func(addr string, wait time.Duration, err error)
}

// Stream is one stream under way, as its watchdog sees it.
type Stream interface {
	// Services are those of the node that the stream is to be made at, and Addr is its address.
	Services() *Services
	Addr() string
	// Live says that the first frame has come. From then on the stream counts as dead when it is silent for 2.5 times as long.
	Live(heartbeat time.Duration)
	// Busy says that a frame has come, and Idle that it was taken: the silence between is not the server's.
	Busy()
	Idle()
	// Leave ends the stream for a reason of one's own.
	Leave(err error)
}
