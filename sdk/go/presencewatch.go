package parley

import (
	"context"
	"errors"
	"iter"
	"slices"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// Watch watches more users, on the same stream. A user that is already watched does not change. The
// states follow from Next.
//
// A final error such as ErrLimitExceeded or ErrNoSharedChannel leaves the presence unchanged. So
// does the end of ctx, whose error wraps the last failure, and that of the presence, which returns
// Err. After a retryable error of the server, the request is repeated while the stream lives. If it
// is unknown whether the request arrived, Watch returns nil and the presence reconnects with all
// users.
//
// Between two streams Watch returns at once, and the next stream starts with all users. If the
// server refuses some with ErrNoSharedChannel then, these are lost (see PresenceUserLost). Any
// other refusal, such as ErrLimitExceeded, ends the presence, and so does any refusal before the
// presence was live for the first time.
func (p *Presence) Watch(ctx context.Context, userIDs ...string) error {
	for _, id := range userIDs {
		if err := checkText("watch", id); err != nil {
			return err
		}
	}
	var added []string
	err := p.change(ctx, "", func() { added = p.addUsers(userIDs) }, func() { p.removeUsers(added) })
	if err == nil {
		p.regain(PresenceUserLost, added)
	}
	return err
}

// Unwatch stops watching users. Their states that were not taken yet are dropped. Users that are
// not watched are ignored. Also if it returns an error, the users are no longer watched.
func (p *Presence) Unwatch(ctx context.Context, userIDs ...string) error {
	return p.change(ctx, "", func() { p.removeUsers(userIDs) }, func() {})
}

// WatchChannel follows which members of a members-only channel are online. A channel that is
// already watched does not change. The state follows from Next.
//
// Errors are like those of Watch: ErrNotMember, ErrLimitExceeded, and ErrChannelOpen for an open
// channel, whose members are not known. If the node of the stream is full, the presence moves to
// another node. If there is none, WatchChannel returns ErrNodeFull after five attempts. Between two
// streams it returns at once. If the server refuses the channel then, the channel is lost (see
// PresenceChannelLost).
func (p *Presence) WatchChannel(ctx context.Context, channelID string) error {
	if err := checkText("channel_id", channelID); err != nil {
		return err
	}
	var added []string
	err := p.change(ctx, channelID, func() { added = p.addChannels([]string{channelID}) }, func() { p.removeChannels(added) })
	if err == nil {
		p.regain(PresenceChannelLost, added)
	}
	return err
}

// UnwatchChannel stops following a channel's members. A channel that is not watched is ignored.
func (p *Presence) UnwatchChannel(ctx context.Context, channelID string) error {
	return p.change(ctx, "", func() { p.removeChannels([]string{channelID}) }, func() {})
}

// SetBackground sets whether the device is in the background, for example because its program is
// not visible. Between two streams it returns at once, and the next stream starts with the value.
// It has no effect on an invisible presence.
func (p *Presence) SetBackground(ctx context.Context, background bool) error {
	var before bool
	return p.change(ctx, "", func() { before, p.background = p.background, background }, func() { p.background = before })
}

// change makes a change and asks the server for it. If the server refuses it, it calls undo. Both
// are called with the lock. asked is the channel that the change begins to watch, or "".
func (p *Presence) change(ctx context.Context, asked string, change, undo func()) error {
	if err := p.lockChanges(ctx); err != nil {
		return err
	}
	defer p.unlockChanges()
	p.mu.Lock()
	change()
	current := p.stream
	p.mu.Unlock()
	err := p.sync(ctx, current, asked)
	if err == nil {
		return nil
	}
	p.mu.Lock()
	undo()
	current = p.stream
	p.mu.Unlock()
	// A part of the change may have been made, or a new stream may have begun with it.
	if again := p.sync(ctx, current, ""); again != nil {
		current.cancel(errRewatch)
	}
	return err
}

// ask asks the server for a change, and records it if it was made.
func (p *Presence) ask(ctx context.Context, current *presenceStream, c *presenceChange) error {
	update := new(parleyv1.PresenceUpdate)
	p.mu.Lock()
	id, background := current.id, p.background
	p.mu.Unlock()
	err := p.repeat(ctx, current, func(ctx context.Context, n *endpoint) error {
		switch {
		case c.watch != "":
			r, err := n.Presence.WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: c.watch})
			if state := r.GetPresence(); state != nil {
				update.Channels = []*parleyv1.ChannelPresence{state}
			}
			return err
		case c.unwatch != "":
			_, err := n.Presence.UnwatchChannel(ctx, &parleyv1.UnwatchChannelRequest{StreamId: id, ChannelId: c.unwatch})
			return err
		case c.background:
			_, err := n.Presence.SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: id, Background: background})
			return err
		default:
			r, err := n.Presence.UpdateWatch(ctx, &parleyv1.UpdateWatchRequest{StreamId: id, Add: c.add, Remove: c.remove})
			update.Users = r.GetPresence()
			return err
		}
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	c.record(current, background)
	if ch := p.channels[c.watch]; ch != nil && update.Channels == nil && p.stream == current {
		// Without a first state, a loss that arrived meanwhile waits for nothing.
		if i := slices.IndexFunc(ch.early, (*ChannelPresence).GetLost); i >= 0 {
			p.loseChannel(current, ch.early[i])
		}
	}
	p.mu.Unlock()
	p.apply(current, update)
	return nil
}

// repeat makes attempts of a change until one succeeds, a failure is final, or the stream or ctx
// ends. If it is unknown whether an attempt made the change, it leaves the stream: a repeat could
// overtake the first attempt, which would then undo a later change. NODE_FULL is about the node of
// the stream. After maxFull attempts repeat returns it.
func (p *Presence) repeat(ctx context.Context, current *presenceStream, attempt attemptFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-current.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	var full *Error
	refusals := 0
	err := p.client.retry(ctx, "presence change", func(ctx context.Context, n *endpoint) error {
		err := attempt(ctx, n)
		if err != nil && uncertain(err) {
			current.cancel(errRewatch)
		}
		if e, ok := errors.AsType[*Error](toError(err)); ok && errors.Is(e, ErrNodeFull) {
			if refusals++; refusals == maxFull {
				full = e
				cancel()
			}
			e := *e
			e.ofStream = true
			return &e
		}
		return err
	})
	if full != nil {
		return full
	}
	return err
}

// maxFull is the number of attempts of a change that the node of the stream may refuse as full.
const maxFull = 5

// record records that the server made a change on a stream.
func (c *presenceChange) record(current *presenceStream, background bool) {
	for _, id := range c.remove {
		delete(current.users, id)
	}
	for _, id := range c.add {
		current.users[id] = true
	}
	switch {
	case c.watch != "":
		current.channels[c.watch] = true
	case c.unwatch != "":
		delete(current.channels, c.unwatch)
	case c.background:
		current.background = background
	}
}

// lockChanges waits until no other change is in progress. It returns the error of ctx, or that of
// the presence if it has ended.
func (p *Presence) lockChanges(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done:
		return p.Err()
	case p.changeLock <- struct{}{}:
		return nil
	}
}

func (p *Presence) unlockChanges() { <-p.changeLock }

// PresenceOf returns the presence of any number of users, in their order. A user that does not
// exist is offline. It requires the action `watch`. The states are at most 2 s old.
//
// It makes one request per 500 users. Each is retried until ctx or the call's deadline ends.
func (c *Client) PresenceOf(ctx context.Context, userIDs ...string) ([]*UserPresence, error) {
	for _, id := range userIDs {
		if err := checkText("user_ids", id); err != nil {
			return nil, err
		}
	}
	var all []*UserPresence
	for len(userIDs) > 0 {
		part := userIDs[:min(len(userIDs), maxUsers)]
		userIDs = userIDs[len(part):]
		var res *parleyv1.GetPresenceResponse
		err := c.do(ctx, "GetPresence", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Presence.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: part})
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, res.GetPresence()...)
	}
	return all, nil
}

// OnlineOption sets a property of OnlineUsers: PageSize.
type OnlineOption interface{ applyToOnline(pageSize *int32) }

// OnlineUsers iterates over the users that are online, in no particular order. A user that is
// online during the whole iteration is yielded once. It requires the action `list`.
//
// Pages are loaded as the loop needs them, of PageSize users or, by default, of 100. Each page is a
// call, retried until ctx or the call's deadline ends. If a call fails, the iteration ends with its
// error.
func (c *Client) OnlineUsers(ctx context.Context, opts ...OnlineOption) iter.Seq2[*UserPresence, error] {
	var size int32
	for _, opt := range opts {
		opt.applyToOnline(&size)
	}
	return link.Pages(func(token string) ([]*UserPresence, string, error) {
		var res *parleyv1.ListOnlineUsersResponse
		err := c.do(ctx, "ListOnlineUsers", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Presence.ListOnlineUsers(ctx, &parleyv1.ListOnlineUsersRequest{PageSize: size, PageToken: token})
			return err
		})
		return res.GetPresence(), res.GetNextPageToken(), err
	})
}
