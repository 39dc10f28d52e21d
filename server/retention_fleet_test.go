package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

const (
	// trimKeep is how many messages the policy keeps, trimSlack how many more may be kept for a while.
	trimKeep, trimSlack = 150, 100
	// trimSends is the number of sends of TestRetentionInAFleet, and trimFor how long they may take.
	trimSends, trimFor = 900, 2 * time.Minute
	// staleFor bounds how long a node may read with an earlier boundary.
	staleFor = 2 * time.Second
)

// trimmed is a channel that is trimmed while it is written and read on several nodes, and what its
// users know of it.
type trimmed struct {
	t        *testing.T
	deadline time.Time

	mu      sync.Mutex // guards the fields below
	clients []client
	// sent holds the acknowledged sends by client_msg_id, byKey their keys in order.
	sent  map[string]*parleyv1.SendMessageResponse
	byKey []string
	// oldest is the highest oldest_seq that was announced, with the time.
	oldest   int64
	oldestAt time.Time
	// shown, passed and gaps count what was read, so that the test shows that it tested something.
	shown, gaps, repeats int
}

func (c *trimmed) client(r *rand.Rand) client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clients[r.IntN(len(c.clients))]
}

// over reports whether the load has ended.
func (c *trimmed) over(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey) >= trimSends || ctx.Err() != nil || time.Now().After(c.deadline)
}

// passing reports whether an error is one that a fleet may return while its nodes restart.
func passing(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeAborted || code == connect.CodeCanceled || code == connect.CodeDeadlineExceeded ||
		code == connect.CodeUnknown || code == connect.CodeInternal && errors.Is(err, context.Canceled)
}

// announce records an oldest_seq, and returns the one that a read that begins now must respect.
func (c *trimmed) announce(oldest int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oldest > c.oldest {
		c.oldest, c.oldestAt = oldest, time.Now()
	}
}

// bound returns an oldest_seq below which nothing may be shown from now on.
func (c *trimmed) bound() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.oldestAt) < staleFor {
		return 0
	}
	return c.oldest
}

// write sends new messages, repeats of earlier ones, and edits, until the load has ended.
func (c *trimmed) write(ctx context.Context, name string, r *rand.Rand) error {
	for n := 0; !c.over(ctx); n++ {
		key := fmt.Sprintf("%s-%d", name, n)
		c.mu.Lock()
		var earlier *parleyv1.SendMessageResponse
		if len(c.byKey) > 0 && r.IntN(10) == 0 {
			key = c.byKey[r.IntN(len(c.byKey))]
			earlier = c.sent[key]
		}
		c.mu.Unlock()
		var res *parleyv1.SendMessageResponse
		for {
			var err error
			res, err = c.client(r).SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "hot", Content: key, ClientMsgId: key})
			if err == nil {
				break
			}
			if !passing(err) {
				return fmt.Errorf("send %s: %w", key, err)
			}
		}
		c.mu.Lock()
		if earlier == nil {
			c.sent[key] = res
			c.byKey = append(c.byKey, key)
		} else if c.repeats++; !res.GetDuplicate() || res.GetSeq() != earlier.GetSeq() || res.GetMsgId() != earlier.GetMsgId() || res.GetCount() != earlier.GetCount() {
			c.t.Errorf("a repeat of %v was answered with %v", earlier, res)
		}
		c.mu.Unlock()
		if r.IntN(8) == 0 {
			_, err := c.client(r).EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "hot", MsgId: res.GetMsgId(), Content: key})
			if reason, _ := reasonOf(err); err != nil && !passing(err) && reason != parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND {
				return fmt.Errorf("edit %s: %w", key, err)
			}
		}
	}
	return nil
}

// list reads pages in all directions, until the load has ended.
func (c *trimmed) list(ctx context.Context, r *rand.Rand) error {
	for !c.over(ctx) {
		bound := c.bound()
		req := &parleyv1.ListMessagesRequest{ChannelId: "hot", PageSize: int32(1 + r.IntN(300))}
		after := int64(0)
		switch r.IntN(3) {
		case 0:
			req.AfterSeq = &after
		case 1:
			after = c.oldestKnown() - 30 + r.Int64N(60)
			if after = max(1, after); after > 0 {
				req.AfterSeq = &after
			}
		}
		res, err := c.client(r).ListMessages(ctx, req)
		reason, limit := reasonOf(err)
		switch {
		case reason == parleyv1.ErrorReason_ERROR_REASON_HISTORY_GONE:
			if limit < after+2 || limit < bound {
				return fmt.Errorf("list after %d: gone up to %d, and %d was announced", after, limit, bound)
			}
			continue
		case reason == parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE, err != nil && passing(err):
			continue
		case err != nil:
			return fmt.Errorf("list after %d: %w", after, err)
		}
		if err := c.checkPage(req, res, bound); err != nil {
			return err
		}
		c.announce(res.GetOldestSeq())
	}
	return nil
}

func (c *trimmed) oldestKnown() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.oldest
}

// checkPage returns an error unless the page has all messages of its range.
func (c *trimmed) checkPage(req *parleyv1.ListMessagesRequest, res *parleyv1.ListMessagesResponse, bound int64) error {
	messages := res.GetMessages()
	if res.GetOldestSeq() < bound {
		return fmt.Errorf("oldest_seq is %d after %d was announced", res.GetOldestSeq(), bound)
	}
	for i, m := range messages {
		step := int64(1)
		if req.AfterSeq == nil {
			step = -1
		}
		if m.GetSeq() < res.GetOldestSeq() || m.GetContent() != m.GetClientMsgId() || i > 0 && m.GetCount() != messages[i-1].GetCount()+step {
			return fmt.Errorf("message %v at %d of a page with oldest_seq %d, after %v", m, i, res.GetOldestSeq(), messages[max(0, i-1)])
		}
	}
	if req.AfterSeq == nil && res.GetNextPageToken() == "" && len(messages) > 0 && len(messages) < trimKeep &&
		messages[len(messages)-1].GetCount() > 1 {
		return fmt.Errorf("only %d messages are kept", len(messages))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown += len(messages)
	return nil
}

// subscribe follows the channel from positions before and after its boundary.
func (c *trimmed) subscribe(ctx context.Context, r *rand.Rand) error {
	for !c.over(ctx) {
		position := max(0, c.oldestKnown()-100+r.Int64N(200))
		bound := c.bound()
		short, cancel := context.WithTimeout(ctx, time.Duration(200+r.IntN(3000))*time.Millisecond)
		err := c.follow(short, c.client(r), position, bound)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// follow reads a stream to its end, and returns an error unless it receives every entry or a gap.
func (c *trimmed) follow(ctx context.Context, cl client, position, bound int64) error {
	stream, err := cl.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("hot", position)}})
	if err != nil {
		return nil // the node restarts
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			switch {
			case e.GetState() != nil:
				c.announce(e.GetState().GetOldestSeq())
				continue
			case e.GetGap() != nil:
				gap := e.GetGap()
				if gap.GetReason() == parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG {
					position = gap.GetToSeq()
					continue
				}
				if gap.GetReason() != parleyv1.GapReason_GAP_REASON_HISTORY_GONE || gap.GetAfterSeq() != position || gap.GetToSeq() <= position {
					return fmt.Errorf("gap %v at position %d", gap, position)
				}
				position = gap.GetToSeq()
				c.mu.Lock()
				c.gaps++
				c.mu.Unlock()
				continue
			case e.GetLost() != nil, e.GetTyping() != nil:
				continue
			case e.GetFromSeq() != position+1 || e.GetSeq() <= position:
				return fmt.Errorf("event %v at position %d", e, position)
			}
			position = e.GetSeq()
			if m := e.GetSent(); m != nil && (m.GetSeq() < bound || m.GetContent() != m.GetClientMsgId()) {
				return fmt.Errorf("event %v, and %d was announced", e, bound)
			}
		}
	}
	return nil
}

// TestRetentionInAFleet writes, lists and follows a channel on three nodes while it is trimmed and
// nodes restart. It checks that nothing is missing without notice, too little is kept, or shown
// again after it has expired, that no seq is used twice, and that every repeat of a send is
// recognized.
func TestRetentionInAFleet(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Retention.MaxMessages = trimKeep }))
	nodes := []*servertest.Server{s, s.Join(), s.Join()}
	c := &trimmed{t: t, deadline: time.Now().Add(trimFor), sent: map[string]*parleyv1.SendMessageResponse{}}
	for _, n := range nodes {
		c.clients = append(c.clients, n.Client(s.Token))
	}
	g, ctx := errgroup.WithContext(t.Context())
	source := func(n int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(n))) }
	for i := range 3 {
		g.Go(func() error { return c.write(ctx, fmt.Sprint("w", i), source(i)) })
		g.Go(func() error { return c.subscribe(ctx, source(20+i)) })
	}
	g.Go(func() error { return c.list(ctx, source(10)) })
	g.Go(func() error { return c.list(ctx, source(11)) })
	for i := 1; !c.over(ctx); i = 3 - i {
		nodes[i].Stop()
		nodes[i].Start()
		c.mu.Lock()
		c.clients[i] = nodes[i].Client(s.Token)
		c.mu.Unlock()
		<-time.After(2 * time.Second)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	c.settled(nodes[0].Client(s.Token))
	t.Logf("%d sends, %d repeats, %d messages listed, %d gaps, oldest %d", len(c.sent), c.repeats, c.shown, c.gaps, c.oldest)
	if c.repeats < 10 || c.gaps < 2 || c.oldest < 2 {
		t.Error("too little happened")
	}
}

// settled checks the channel once nothing is written any more.
func (c *trimmed) settled(cl client) {
	c.t.Helper()
	seqs := map[int64]string{}
	for key, res := range c.sent {
		if other, ok := seqs[res.GetSeq()]; ok {
			c.t.Errorf("%s and %s have the seq %d", key, other, res.GetSeq())
		}
		seqs[res.GetSeq()] = key
	}
	testkit.Eventually(c.t, 30*time.Second, func() error {
		page := listPage(c.t, cl, &parleyv1.ListMessagesRequest{ChannelId: "hot", PageSize: 1000})
		messages := page.GetMessages()
		if len(messages) < trimKeep || len(messages) > trimKeep+trimSlack {
			return fmt.Errorf("%d messages are kept", len(messages))
		}
		have := map[string]bool{}
		for _, m := range messages {
			have[m.GetClientMsgId()] = true
		}
		for key, res := range c.sent {
			if res.GetSeq() >= page.GetOldestSeq() != have[key] {
				return fmt.Errorf("%v, with oldest_seq %d, is listed: %v", res, page.GetOldestSeq(), have[key])
			}
		}
		info, err := cl.GetChannel(c.t.Context(), &parleyv1.GetChannelRequest{ChannelId: "hot"})
		if ch := info.GetChannel(); err != nil || ch.GetCount()-ch.GetExpiredCount() != int64(len(messages)) || ch.GetOldestSeq() != page.GetOldestSeq() {
			return fmt.Errorf("channel %v, %w", info, err)
		}
		return nil
	})
}
