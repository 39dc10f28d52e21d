package natsbus

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// What waits for a subscription's function: so much that only one that hangs meets the limit.
	pendingEvents = 1 << 20
	pendingBytes  = 256 << 20
	// interestWait bounds how long Subscribe waits for the server to know of it.
	interestWait = 250 * time.Millisecond
)

// Subscribe has fn called with each event that is published to the channel from now on: one after another, in the order
// of arrival, which is a hint and not the order of the log; events may come twice or not at all. Once it has returned,
// its own NATS server knows of the subscription (if NATS answers within 250 ms; other servers of a cluster learn of it
// a moment later). While NATS is away the subscription waits with it. fn may be running, for the last time, when cancel
// returns. fn should not block: what waits for it is bounded, and dropped beyond that, which OnReconnect's functions
// are told.
func (b *Bus) Subscribe(channelID string, fn func(message.Event)) (cancel func(), err error) {
	subject, err := b.subjectOf(channelID)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	sub, err := b.nc.Subscribe(subject, func(msg *nats.Msg) {
		e, err := decode(msg.Subject, msg.Data)
		if err != nil {
			b.log.Error("dropped an event that can't be read", "error", err)
			return
		}
		fn(e)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	cancel = func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) &&
			!errors.Is(err, nats.ErrBadSubscription) {
			b.log.Warn("unsubscribe", "subject", subject, "error", err)
		}
	}
	if err := sub.SetPendingLimits(pendingEvents, pendingBytes); err != nil {
		cancel()
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	if b.nc.IsConnected() {
		if err := b.nc.FlushTimeout(interestWait); err != nil {
			b.log.Debug("subscribed without an answer", "subject", subject, "error", err)
		}
	}
	return cancel, nil
}
