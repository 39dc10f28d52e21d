package parley

import (
	"context"
	"errors"
	"slices"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Add follows more channels, on the same stream. A channel that is already followed does not
// change; to restart it, Remove it first. A lost channel starts again, even if its EventLost has
// not been taken yet; that event is then dropped.
//
// A final error such as ErrCapabilityMissing leaves the subscription unchanged. If it is unknown
// whether the request arrived, Add returns nil and the subscription reconnects with all channels.
// Between two streams Add returns at once. The next stream then starts with all channels. If the
// server refuses some of them, these are lost; if no stream has been live before, the subscription
// ends.
func (s *Subscription) Add(ctx context.Context, starts ...Start) error {
	for _, start := range starts {
		if err := checkText("channels", start.position.ChannelID, "channels", start.position.Epoch); err != nil {
			return err
		}
	}
	if err := s.lockChanges(ctx); err != nil {
		return err
	}
	defer s.unlockChanges()
	s.mu.Lock()
	var added []*channel
	for _, start := range starts {
		if s.insert(start) {
			added = append(added, s.channels[start.position.ChannelID])
		}
	}
	current := s.stream
	req := changeRequest(current, added, nil)
	for _, ch := range added {
		ch.tentative = req != nil
	}
	s.mu.Unlock()
	err := s.update(ctx, current, req)
	s.settle(current, added, err)
	return err
}

// settle confirms channels that Add has added, or removes them again if err is not nil.
func (s *Subscription) settle(current *stream, added []*channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range added {
		if err != nil {
			s.delete(ch.id)
			if ch.replaced != nil {
				s.put(ch.replaced)
			}
			continue
		}
		ch.tentative, ch.replaced = false, nil
		if !ch.onStream && !ch.lost && s.stream != nil && s.stream != current && s.stream.id != "" {
			// The stream that took the channel has ended, and its successor started without the
			// channel.
			s.stream.cancel(errResubscribe)
		}
	}
}

// Remove stops following channels. Their events that arrived but were not taken yet are dropped.
// Channels that are not followed are ignored.
func (s *Subscription) Remove(ctx context.Context, channelIDs ...string) error {
	if err := s.lockChanges(ctx); err != nil {
		return err
	}
	defer s.unlockChanges()
	s.mu.Lock()
	var removed []string
	for _, id := range channelIDs {
		ch := s.channels[id]
		if ch == nil {
			continue
		}
		if ch.onStream {
			removed = append(removed, id)
		}
		s.delete(id)
	}
	current := s.stream
	req := changeRequest(current, nil, removed)
	if req == nil && current != nil {
		current.removed = append(current.removed, removed...)
	}
	s.mu.Unlock()
	return s.update(ctx, current, req)
}

// RenewToken gets a new token from the client's TokenSource and makes the subscription continue
// with it, for example because the user's rights have changed. The client's later calls use it too.
// Each channel that it does not allow is lost, with LOST_REASON_CAPABILITY_MISSING. The
// subscription stays on its stream. It reconnects if it is unknown whether the request arrived, if
// the stream is opening, or if it carries presence.
//
// An error of the TokenSource changes nothing. After another error the client has the new token,
// and the subscription is still on its stream with the one before. With a fixed token RenewToken
// does nothing.
func (s *Subscription) RenewToken(ctx context.Context) error {
	if err := s.lockChanges(ctx); err != nil {
		return err
	}
	defer s.unlockChanges()
	before, now, err := s.client.tokens.renew(ctx)
	if err != nil || before == now {
		return err
	}
	s.mu.Lock()
	s.outdated = before // for a stream that is opening, maybe with this token
	current := s.stream
	var req *parleyv1.UpdateSubscriptionRequest
	switch {
	case current == nil || current.id == "" || current.token == now:
	case current.rider != nil:
		current.cancel(errResubscribe)
	default:
		req = &parleyv1.UpdateSubscriptionRequest{StreamId: current.id, RenewToken: true}
	}
	s.mu.Unlock()
	if err := s.update(ctx, current, req); err != nil || req == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current.token = now
	return nil
}

// catchUp sends the server the changes of channels that were made while the stream was opening.
func (s *Subscription) catchUp(ctx context.Context, current *stream) error {
	if err := s.lockChanges(ctx); err != nil {
		return err
	}
	defer s.unlockChanges()
	s.mu.Lock()
	var late []*channel
	for _, id := range s.order {
		if ch := s.channels[id]; !ch.onStream && ch.active() {
			late = append(late, ch)
		}
	}
	// A channel that was removed and added again is only added, which restarts it.
	removed := slices.DeleteFunc(current.removed, func(id string) bool { return s.channels[id] != nil })
	req := changeRequest(current, late, removed)
	current.removed = nil
	s.mu.Unlock()
	return s.update(ctx, current, req)
}

// changeRequest returns the request that changes the live stream, and marks the added channels as
// on the stream. It returns nil if there is no live stream or no change. The caller holds the lock.
func changeRequest(current *stream, add []*channel, remove []string) *parleyv1.UpdateSubscriptionRequest {
	if current == nil || current.id == "" || len(add)+len(remove) == 0 {
		return nil
	}
	req := &parleyv1.UpdateSubscriptionRequest{StreamId: current.id, Remove: remove}
	for _, ch := range add {
		ch.onStream, ch.hasState = true, false
		req.Add = append(req.Add, ch.request())
	}
	return req
}

// update sends the request once; nil is not sent. If it is unknown whether the request arrived, or
// the stream has ended, it makes the subscription open a new stream with all channels.
func (s *Subscription) update(ctx context.Context, current *stream, req *parleyv1.UpdateSubscriptionRequest) error {
	if req == nil {
		return nil
	}
	_, err := s.client.try(ctx, s.client.attemptTimeout, func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.UpdateSubscription(ctx, req)
		return err
	})
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && !e.Retryable && e.Reason != parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND:
		return err
	default:
		current.cancel(errResubscribe)
		return nil
	}
}

// lockChanges waits until no other change is in progress. It returns the error of ctx, or that of
// the subscription if it has ended.
func (s *Subscription) lockChanges(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return s.Err()
	case s.changeLock <- struct{}{}:
		return nil
	}
}

func (s *Subscription) unlockChanges() { <-s.changeLock }
