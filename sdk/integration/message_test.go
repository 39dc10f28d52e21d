package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/servertest"
)

// TestRollingRestartOfParleyd restarts the nodes of a real fleet in turn, with running writers and
// readers. No call may fail, and every reader must see every message once, in the log's order.
func TestRollingRestartOfParleyd(t *testing.T) {
	t.Parallel()
	first := servertest.Serve(t)
	fleet := []*servertest.Server{first, first.Join(), first.Join()}
	addrs := make([]string, len(fleet))
	for i, s := range fleet {
		addrs[i] = s.URL
	}
	client := func() *parley.Client {
		return newClient(t, strings.Join(addrs, ","), parley.WithToken(first.Token))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const writers, each = 3, 100
	readers := make([]*parley.Subscription, 6)
	for i := range readers {
		readers[i] = client().Subscribe(ctx, parley.FromStart("room"))
		t.Cleanup(readers[i].Close)
		nextEvent(t, readers[i], parley.EventChannelState)
	}
	var work sync.WaitGroup
	for w := range writers {
		c := client()
		work.Go(func() {
			for i := range each {
				if _, err := c.Send(ctx, "room", fmt.Sprintf("%d-%d", w, i)); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	for i, s := range fleet {
		wantEntries(t, readers[0], int64(i*20+1), int64(i*20+20))
		s.Stop()
		s.Start()
	}
	work.Wait()
	wantEntries(t, readers[0], int64(len(fleet)*20+1), writers*each)
	for _, sub := range readers[1:] {
		wantEntries(t, sub, 1, writers*each)
	}
	n := 0
	for _, err := range client().History(ctx, "room", parley.AfterSeq(0)) {
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		n++
	}
	if n != writers*each {
		t.Errorf("the log holds %d messages, want %d", n, writers*each)
	}
}

// TestCallsOfParleyd checks the results that the SDK returns for each kind of call to a real
// server, including repeated ones.
func TestCallsOfParleyd(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	ctx, c := testContext(t), newClient(t, s.URL, parley.WithToken(s.Token))
	key := parley.WithIdempotencyKey("my-key")
	for range 2 {
		ch, err := c.CreateChannel(ctx, "room", key, parley.MembersOnly(), parley.WithMembers("ann", "bob"))
		if err != nil || !ch.GetMembersOnly() || ch.GetOldestSeq() != 1 || ch.GetEpoch() == "" || ch.GetEtag() == "" {
			t.Fatalf("create: %v, %v", ch, err)
		}
	}
	if _, err := c.CreateChannel(ctx, "room", key); !errors.Is(err, parley.ErrIdempotencyKeyReused) {
		t.Errorf("the same key with other settings: %v", err)
	}
	if _, err := c.CreateChannel(ctx, "room", parley.MembersOnly(), parley.WithMembers("ann", "bob")); !errors.Is(err, parley.ErrChannelExists) {
		t.Errorf("another call: %v", err)
	}
	roles := map[string]parley.Role{"ann": parley.RoleMember, "bob": parley.RoleMember, "tester": parley.RoleOwner}
	for m, err := range c.Members(ctx, "room") {
		if err != nil || m.GetRole() != roles[m.GetUserId()] {
			t.Errorf("member %v, %v", m, err)
		}
	}
	sent, err := c.Send(ctx, "room", "hello")
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	edit, err := c.Edit(ctx, "room", sent.MsgID, "hello!")
	if err != nil || edit.Seq != 2 || edit.Message.GetContent() != "hello!" || edit.Message.GetChangedSeq() != 2 || edit.Epoch != sent.Epoch {
		t.Errorf("edit: %+v, %v", edit, err)
	}
	for i := range 2 {
		recall, err := c.Recall(ctx, "room", sent.MsgID)
		if err != nil || recall.Seq != 3 || recall.Duplicate != (i > 0) || recall.Message.GetContent() != "" ||
			recall.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
			t.Errorf("recall %d: %+v, %v", i, recall, err)
		}
	}
	if m, epoch, err := c.Get(ctx, "room", sent.MsgID); err != nil || epoch != sent.Epoch || m.GetChangedSeq() != 3 {
		t.Errorf("get: %v, %q, %v", m, epoch, err)
	}
	if read, err := c.MarkRead(ctx, "room", 3); err != nil || read != (parley.ReadCursor{Seq: 3, Epoch: sent.Epoch}) {
		t.Errorf("mark read: %+v, %v", read, err)
	}
	sub := subscribe(t, c, parley.FromStart("room"))
	// The recall replaced the edit, which has no event of its own.
	for _, want := range [][2]int64{{1, 1}, {2, 3}} {
		if e := nextEvent(t, sub); e.FromSeq != want[0] || e.Seq != want[1] {
			t.Errorf("event %+v, want the entries %d to %d", e, want[0], want[1])
		}
	}
	info, err := newClient(t, s.URL, parley.WithToken(s.MintFor("nobody", time.Minute))).ServerInfo(ctx)
	if err != nil || info.GetVersion() == "" || info.GetLimits().GetMaxChannelsPerStream() == 0 {
		t.Errorf("server info: %v, %v", info, err)
	}
}

// TestExpiredTokenOfParleyd makes calls with an expired token. A token source must replace it;
// without one the error must be final.
func TestExpiredTokenOfParleyd(t *testing.T) {
	t.Parallel()
	const secret = "a secret that only this test knows"
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Auth.HS256Secret = secret }))
	claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(-time.Hour).Unix(), "cap": map[string]any{}}
	expired, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	fixed := newClient(t, s.URL, parley.WithToken(expired))
	if _, err := fixed.ServerInfo(testContext(t)); !errors.Is(err, parley.ErrTokenExpired) {
		t.Errorf("a call with an expired token: %v", err)
	}
	var calls atomic.Int32
	refreshed := newClient(t, s.URL, patient, parley.WithTokenSource(func(context.Context) (string, error) {
		if calls.Add(1) == 1 {
			return expired, nil
		}
		return s.MintFor("ann", time.Hour), nil
	}))
	if _, err := refreshed.ServerInfo(testContext(t)); err != nil || calls.Load() != 2 {
		t.Errorf("with a source: %v after %d tokens", err, calls.Load())
	}
}

// TestFullNodeOfParleyd starts more subscriptions than one node accepts. They must go to the other
// node without a backoff, which would last longer than the test.
func TestFullNodeOfParleyd(t *testing.T) {
	t.Parallel()
	full := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Limits.Streams = 1 }))
	roomy := full.Join(servertest.With(func(c *config.Config) { c.Limits.Streams = 100 }))
	for range 8 { // half of the clients begin at the full node
		c := newClient(t, full.URL+","+roomy.URL, patient, parley.WithToken(full.Token))
		nextEvent(t, subscribe(t, c, parley.FromStart("room")), parley.EventChannelState)
	}
}
