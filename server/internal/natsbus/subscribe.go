package natsbus

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// pendingEvents and pendingBytes bound the events that are queued for a subscription's callback.
	// They are so large that only a callback that hangs reaches them.
	pendingEvents = 1 << 20
	pendingBytes  = 256 << 20
	// pendingTyping is far smaller: old typing notices are of no interest.
	pendingTyping = 1024
	// interestWait bounds how long Subscribe waits until the server knows the subscription.
	interestWait = 250 * time.Millisecond
	// maxUserID bounds the length of a user id, in bytes.
	maxUserID = 128
)

// Subscribe calls fn with each event published to the channel from now on, one at a time, in order
// of arrival. That order is a hint, not the order of the log, and events may come twice or not at
// all. typing may be nil; otherwise it is called likewise with the id of each user passed to
// PublishTyping. It may run concurrently with fn.
//
// When Subscribe returns, the NATS server that this Bus is connected to knows the subscription,
// provided that it answers within 250 ms. Other servers of a cluster know it a moment later. While
// NATS is away, the subscription stays and resumes on reconnect.
//
// Both functions may still be running, for the last time, when cancel returns. They should not
// block: their queues are bounded, and events beyond that are dropped, after which OnReconnect's
// functions are called.
func (b *Bus) Subscribe(
	channelID string, fn func(message.Event), typing func(userID string),
) (cancel func(), err error) {
	subject, err := b.subjectOf(channelID)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	cancel, err = b.listen(subject, pendingEvents, pendingBytes, func(msg *nats.Msg) {
		e, err := decode(msg.Subject, msg.Data)
		if err != nil {
			b.log.Error("event dropped: decode failed", "error", err)
			return
		}
		fn(e)
	})
	if err != nil {
		return nil, err
	}
	if typing != nil {
		cancelEvents := cancel
		cancelTyping, err := b.listenTyping(channelID, typing)
		if err != nil {
			cancelEvents()
			return nil, err
		}
		cancel = func() {
			cancelEvents()
			cancelTyping()
		}
	}
	b.flush(subject)
	return cancel, nil
}

// PublishTyping announces to subscribers of the channel that a user is typing, at most once,
// without waiting for delivery. While NATS is away it returns an error and nothing is sent later.
func (b *Bus) PublishTyping(channelID, userID string) error {
	subject, err := typingSubject(channelID)
	if err != nil {
		return fmt.Errorf("publish typing event: %w", err)
	}
	if !isUserID([]byte(userID)) {
		return fmt.Errorf("publish typing event: user id %q is not valid", userID)
	}
	if err := b.nc.Publish(subject, []byte(userID)); err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	return nil
}

func (b *Bus) listenTyping(channelID string, typing func(userID string)) (cancel func(), err error) {
	subject, err := typingSubject(channelID)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return b.listen(subject, pendingTyping, pendingTyping*maxUserID, func(msg *nats.Msg) {
		if isUserID(msg.Data) {
			typing(string(msg.Data))
		}
	})
}

// isUserID reports whether data is 1 to 128 printable ASCII characters without spaces.
func isUserID(data []byte) bool {
	for _, c := range data {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(data) > 0 && len(data) <= maxUserID
}

// listen subscribes fn to a subject until cancel is called.
func (b *Bus) listen(subject string, maxMsgs, maxBytes int, fn nats.MsgHandler) (cancel func(), err error) {
	sub, err := b.subscribe(subject, maxMsgs, maxBytes, fn)
	if err != nil {
		return nil, err
	}
	return func() { b.unsubscribe(sub) }, nil
}

func (b *Bus) subscribe(subject string, maxMsgs, maxBytes int, fn nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := b.nc.Subscribe(subject, fn)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(maxMsgs, maxBytes); err != nil {
		b.unsubscribe(sub)
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

func (b *Bus) unsubscribe(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) &&
		!errors.Is(err, nats.ErrBadSubscription) {
		b.log.Warn("unsubscribe failed", "subject", sub.Subject, "error", err)
	}
}

// flush waits until the server knows the subscriptions created so far, at most interestWait.
// subject is only for the log.
func (b *Bus) flush(subject string) {
	if b.nc.IsConnected() {
		if err := b.nc.FlushTimeout(interestWait); err != nil {
			b.log.Debug("flush of subscription failed", "subject", subject, "error", err)
		}
	}
}
