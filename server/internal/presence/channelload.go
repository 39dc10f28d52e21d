package presence

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// loadMembers reads the members of a channel, and applies what has changed.
func (v *view) loadMembers(ctx context.Context, due []*channelWatch) {
	c := due[0]
	ctx, ok := c.beginLoad(ctx)
	if !ok {
		return
	}
	began := time.Now()
	members, err := v.readMembers(ctx, c.id)
	if err == nil {
		err = c.apply(members, began)
	}
	first := true
	select {
	case <-c.read:
		first = false
	default:
		if err != nil {
			c.fail(err)
		}
		close(c.read)
	}
	switch {
	case err == nil:
		until := time.Now().Add(watchTime)
		if first {
			until = c.began.Add(watchTime)
		}
		c.readStates(ctx, until)
	case first, ctx.Err() != nil, c.abandon(err):
	default:
		v.reportError(fmt.Errorf("read the members of a watched channel: %w", err), slog.String("channel_id", c.id))
	}
	if first {
		close(c.ready)
	}
	c.edit.Lock()
	defer c.edit.Unlock()
	again := c.load == loadOutdated
	c.cancel()
	c.load, c.cancel = loadIdle, nil
	switch {
	case again && (err == nil || !first):
		c.requestAfter(began)
	case err == nil:
		c.request(began.Add(memberLife))
	case !first:
		c.request(began.Add(memberRetry))
	}
}

// beginLoad reports whether the members may be read now, with the context that it returns. It ends
// when nobody watches the channel any more. While another goroutine reads them, beginLoad makes
// that one request another read instead: an older list must not replace a newer one.
func (c *channelWatch) beginLoad(parent context.Context) (ctx context.Context, ok bool) {
	c.edit.Lock()
	defer c.edit.Unlock()
	switch {
	case c.closed:
		return nil, false
	case c.load != loadIdle:
		c.load = loadOutdated
		return nil, false
	}
	c.load = loadRunning
	ctx, c.cancel = context.WithCancel(parent)
	return ctx, true
}

// readMembers reads all members of a channel. It fails with LIMIT_EXCEEDED after the first page if
// there are too many.
func (v *view) readMembers(ctx context.Context, channelID string) (map[string]struct{}, error) {
	members := map[string]struct{}{}
	for after := ""; ; {
		users, total, err := v.readMemberPage(ctx, channelID, after)
		if err != nil {
			return nil, err
		}
		for _, userID := range users {
			members[userID] = struct{}{}
		}
		if max(total, len(members)) > maxChannelMembers {
			f := fault.OverLimit(maxChannelMembers, "a watched channel may have at most %d members")
			f.Field = "channel_id"
			return nil, f
		}
		if len(users) < memberPage {
			return members, nil
		}
		after = users[len(users)-1]
	}
}

func (v *view) readMemberPage(ctx context.Context, channelID, after string) ([]string, int, error) {
	ctx, cancel := v.timeout(ctx)
	defer cancel()
	return v.cfg.Members.Members(ctx, channelID, after, memberPage)
}

// apply replaces the members of a channel with those that were read at the time began.
func (c *channelWatch) apply(members map[string]struct{}, began time.Time) error {
	c.edit.Lock()
	defer c.edit.Unlock()
	if c.closed {
		return nil
	}
	c.loaded = began
	var left []string
	c.mu.Lock()
	added := len(members)
	for userID := range c.members {
		if _, ok := members[userID]; ok {
			added--
		} else {
			left = append(left, userID)
		}
	}
	c.mu.Unlock()
	if err := c.v.reserveMembers(added - len(left)); err != nil {
		return err
	}
	counted := len(members) > c.v.cfg.ChannelMembers
	if counted {
		c.mu.Lock()
		c.counted = true // changes are not sent one by one from here on
		c.mu.Unlock()
	}
	for _, userID := range left {
		c.removeMember(userID)
	}
	for userID := range members {
		c.mu.Lock()
		_, ok := c.members[userID]
		c.mu.Unlock()
		if !ok {
			c.addMember(userID)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	complete := c.counted && !counted
	c.counted = counted
	if complete {
		c.listed = time.Now()
	}
	for s := range c.streams {
		if complete {
			s.deliverComplete(c)
		} else {
			s.deliverCount(c)
		}
	}
	return nil
}

// readStates reads the states of the members that are not known. Those that are not read until the
// given time follow.
func (c *channelWatch) readStates(ctx context.Context, until time.Time) {
	c.mu.Lock()
	members := make([]string, 0, len(c.members))
	for userID := range c.members {
		members = append(members, userID)
	}
	c.mu.Unlock()
	var unknown []string
	for _, userID := range members {
		s := &c.v.shards[ShardOf(userID)]
		s.mu.Lock()
		if w := s.watched[userID]; w != nil && !w.known {
			unknown = append(unknown, userID)
			c.v.reloads.set(s.num, time.Now().Add(watchTime))
		}
		s.mu.Unlock()
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for some := range slices.Chunk(unknown, batchUsers) {
		if _, err := c.v.reads.read(ctx, some); err != nil {
			return
		}
	}
}

// fail ends a channel whose members could not be read for the first time. Those who wait for it get
// the error, and the next who watches it reads the members again.
func (c *channelWatch) fail(err error) {
	c.v.channelMu.Lock()
	defer c.v.channelMu.Unlock()
	c.err = err
	if c.v.channels[c.id] == c {
		delete(c.v.channels, c.id)
	}
}

// abandon ends a channel that can no longer be watched because it, or the node, has too many
// members: every stream that watches it sends a last state with the reason of err. It returns
// false, and does nothing, for another error, after which the members are read again.
func (c *channelWatch) abandon(err error) bool {
	f, ok := fault.As(err)
	if !ok || f.Reason != fault.LimitExceeded && f.Reason != fault.NodeFull {
		return false
	}
	c.edit.Lock()
	c.closed = true
	c.edit.Unlock()
	c.mu.Lock()
	c.unwatchable = f
	streams := slices.Collect(maps.Keys(c.streams))
	c.mu.Unlock()
	// The next who watches it reads the members again.
	c.v.channelMu.Lock()
	if c.v.channels[c.id] == c {
		delete(c.v.channels, c.id)
	}
	c.v.channelMu.Unlock()
	for _, s := range streams {
		c.v.loseChannel(s, c, f.Reason)
	}
	return true
}

// loseChannel makes a stream stop watching c, with a last state. It does nothing if the stream does
// not watch c any more.
func (v *view) loseChannel(s *Stream, c *channelWatch, reason fault.Reason) {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.mu.Lock()
	sub := s.channels[c.id]
	s.mu.Unlock()
	if sub == nil || sub.watch != c {
		return
	}
	v.detach(s, c, reason)
	v.enlist(s)
	v.stats.expelled.Add(1)
}

// reserveMembers adds n, which may be negative, to the number of members of all channels. It fails
// with NODE_FULL if there are too many.
func (v *view) reserveMembers(n int) error {
	v.channelMu.Lock()
	defer v.channelMu.Unlock()
	if n > 0 && v.members+n > maxAllMembers {
		return fault.Full(maxAllMembers, "the watched channels of this node may have at most %d members")
	}
	v.members += n
	return nil
}

func (v *view) releaseMembers(n int) {
	v.channelMu.Lock()
	defer v.channelMu.Unlock()
	v.members -= n
}
