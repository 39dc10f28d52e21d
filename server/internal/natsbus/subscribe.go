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
	// pendingTyping is far less: who typed a while ago is of no interest.
	pendingTyping = 1024
	// interestWait bounds how long Subscribe waits for the server to know of it.
	interestWait = 250 * time.Millisecond
	// maxUserID is the longest user id.
	maxUserID = 128
)

// Subscribe has fn called with each event that is published to the channel from now on: one after another, in the order
// of arrival, which is a hint and not the order of the log; events may come twice or not at all. typing, which may be
// nil, is called likewise with the id of each user of whom PublishTyping tells; it may run beside fn. Once Subscribe has
// returned, its own NATS server knows of the subscription (if NATS answers within 250 ms; other servers of a cluster
// learn of it a moment later). While NATS is away the subscription waits with it. Both functions may be running, for the
// last time, when cancel returns. They should not block: what waits for them is bounded, and dropped beyond that, which
// OnReconnect's functions are told.
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
			b.log.Error("dropped an event that can't be read", "error", err)
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

// PublishTyping tells subscribers of the channel that a user types, at most once, and without waiting. While NATS is away
// it is an error and nobody is told later.
func (b *Bus) PublishTyping(channelID, userID string) error {
	subject, err := typingSubject(channelID)
	if err != nil {
		return fmt.Errorf("publish who types: %w", err)
	}
	if !isUserID([]byte(userID)) {
		return fmt.Errorf("publish who types: user id %q is none", userID)
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

// listen subscribes fn to a subject until cancel.
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
		b.log.Warn("unsubscribe", "subject", sub.Subject, "error", err)
	}
}

// flush waits until the server knows of the subscriptions made so far, or interestWait has passed.
func (b *Bus) flush(subject string) {
	if b.nc.IsConnected() {
		if err := b.nc.FlushTimeout(interestWait); err != nil {
			b.log.Debug("subscribed without an answer", "subject", subject, "error", err)
		}
	}
}
