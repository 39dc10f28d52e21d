package parley_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/server/servertest"
)

// TestRollingRestartOfParleyd restarts the nodes of a real fleet one after another, with writers and readers under way: no
// call fails, and every reader sees every message once, in the log's order.
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
		wantEntries(t, readers[0], "room", int64(i*20+1), int64(i*20+20))
		s.Stop()
		s.Start()
	}
	work.Wait()
	wantEntries(t, readers[0], "room", int64(len(fleet)*20+1), writers*each)
	for _, sub := range readers[1:] {
		wantEntries(t, sub, "room", 1, writers*each)
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
