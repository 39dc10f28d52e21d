package feed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const session = "~s"

func TestRefillAfterAFlush(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	source := r.builderOf(session, r.cache, r.store)
	r.builder.Refill("~never-used", 1)
	for i := range keep + 5 {
		r.mustDeliver(source, r.eventOf(r.send(session, fmt.Sprint(i))))
	}
	r.mustMirror(session)
	earlier := r.client.Dump(t.Context(), key(session)).Val()
	last := r.send(session, "last")
	edit := r.edit(last, "edited")
	r.mustDeliver(source, r.eventOf(last), r.eventOf(edit))
	for name, lose := range map[string]func() error{
		"flushed": func() error { return r.client.FlushAll(t.Context()).Err() },
		"put back": func() error {
			return r.client.RestoreReplace(t.Context(), key(session), time.Hour, earlier).Err()
		},
		"damaged": func() error {
			return r.client.LRem(t.Context(), key(session), 1, r.client.LIndex(t.Context(), key(session), 5).Val()).Err()
		},
		"not a list's values": func() error {
			return errors.Join(r.client.Del(t.Context(), key(session)).Err(), r.client.RPush(t.Context(), key(session), "x", "y").Err())
		},
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if r.mirrors(session) == nil {
			t.Errorf("%s: the list is whole", name)
		}
		r.builder.Refill(session, edit.Seq)
		r.waitMirror(session)
		r.expires(session, 24*time.Hour)
	}
	r.mustDeliver(source, r.eventOf(r.send(session, "goes on")))
	r.mustMirror(session)
	if n := r.client.Exists(t.Context(), key("~never-used")).Val(); n != 0 {
		t.Error("a session without messages has a list")
	}
}

// TestRefillOfAWholeSetReadsNothing checks that a refill that comes too late, or was asked for
// because the builder was a moment behind, reads nothing from the store.
func TestRefillOfAWholeSetReadsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reads := &countedStore{BuilderStore: r.store}
	source := r.builderOf(session, r.cache, reads)
	r.mustDeliver(source, r.eventOf(r.send(session, "1")))
	r.age(session)
	before := reads.n.Load()
	r.builder.Refill(session, 1)
	r.builder.Refill(session, 1) // once this one is no longer waiting, the first one is done
	testkit.Eventually(t, patience, func() error {
		if n := r.builder.Waiting(session); n > 0 {
			return fmt.Errorf("%d refills are waiting", n)
		}
		return nil
	})
	if n := reads.n.Load() - before; n > 0 {
		t.Errorf("%d reads of the store", n)
	}
	r.expires(session, time.Hour)
}

// countedStore counts reads.
type countedStore struct {
	feed.BuilderStore
	n atomic.Int64
}

func (s *countedStore) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	s.n.Add(1)
	return s.BuilderStore.Entries(ctx, channelID, r)
}

func (s *countedStore) Head(ctx context.Context, channelID string) (message.Head, error) {
	s.n.Add(1)
	return s.BuilderStore.Head(ctx, channelID)
}

// gatedCache announces each Replace, and waits for the test to let it go on.
type gatedCache struct {
	feed.CacheWriter
	asked, allowed chan struct{}
}

func (c *gatedCache) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	select {
	case c.asked <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-c.allowed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.CacheWriter.Replace(ctx, channelID, began, log)
}

// TestRefillIsBetweenBatches checks that the events of entries that are appended while a refill has
// read and not written are applied to the list that it writes: none is lost, and a recalled text
// does not come back.
func TestRefillIsBetweenBatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gate := &gatedCache{CacheWriter: r.cache, asked: make(chan struct{}), allowed: make(chan struct{})}
	source := r.builderOf(session, gate, r.store)
	secret := r.send(session, "s3cr3t")
	r.send(session, "stays")
	r.builder.Refill(session, 1)
	<-gate.asked // it has read both
	// A change of an absent set would be done at once, without a rebuild that waits at the gate.
	source.batches <- []message.Event{r.eventOf(r.recall(secret))}
	select {
	case err := <-source.results:
		t.Fatalf("a batch was handled in the middle of a refill: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	gate.allowed <- struct{}{}
	// The refill sees that the log has grown, and writes again.
	for done := false; !done; {
		select {
		case <-gate.asked:
			gate.allowed <- struct{}{}
		case err := <-source.results:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		}
	}
	r.mustMirror(session)
	r.mustDeliver(source, r.eventOf(r.send(session, "appended")))
	r.mustMirror(session)
	r.lacks("s3cr3t")
}

// TestRefillOfTwoOwners checks that a node that still takes itself for the owner, and has read
// before a recall, does not bring back the text after the other owner has handled the recall.
func TestRefillOfTwoOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := r.send(session, "s3cr3t")
	other := newRig(t) // only its builder is used, with the cache and the store of r
	otherSource := other.builderOf(session, r.cache, r.store)
	raced := &racedCache{CacheWriter: r.cache}
	raced.before = func() { r.mustDeliver(otherSource, r.eventOf(r.recall(secret))) }
	r.builderOf(session, raced, r.store)
	r.builder.Refill(session, 1)
	r.waitMirror(session)
	r.lacks("s3cr3t")

	// The same with the other node having cached the newer state.
	if err := r.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	next := r.send(session, "m0re")
	again := &racedCache{CacheWriter: r.cache}
	handled := make(chan struct{})
	again.before = func() {
		defer close(handled)
		r.recall(next)
		r.mustDeliver(otherSource, r.eventOf(r.send(session, "after")))
		r.mustMirror(session)
	}
	third := newRig(t)
	thirdSource := third.builderOf(session, again, r.store)
	third.builder.Refill(session, 1)
	<-handled
	r.mustDeliver(thirdSource) // after the refill
	r.mustMirror(session)
	r.lacks("m0re")
}

// TestStaleRefillIsRefused checks that a list that was read too long ago is not written, and the
// refill begins anew.
func TestStaleRefillIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stopped := &stoppedCache{CacheWriter: r.cache}
	r.send(session, "1")
	r.builderOf(session, stopped, r.store)
	r.builder.Refill(session, 1)
	r.waitMirror(session)
	if n := stopped.stale.Load(); n != 1 {
		t.Errorf("%d loads were refused, want 1", n)
	}
}

// TestFailedRefillLeavesNothing checks that a refill that cannot look at the log after its write
// leaves no list: it may lack a recall.
func TestFailedRefillLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send(session, "1")
	failing := &failingHead{BuilderStore: r.store, after: 1, failed: make(chan struct{})}
	r.builderOf(session, r.cache, failing)
	r.builder.Refill(session, 1)
	<-failing.failed
	r.waitGone(session)
}

// failingHead hangs in every read of a head after some of them.
type failingHead struct {
	feed.BuilderStore
	after  int
	failed chan struct{}
}

func (s *failingHead) Head(ctx context.Context, channelID string) (message.Head, error) {
	if s.after--; s.after < 0 {
		<-ctx.Done()
		close(s.failed)
		return message.Head{}, ctx.Err()
	}
	return s.BuilderStore.Head(ctx, channelID)
}

// TestLoadsHonourTheLimitsOfTheCache checks that a list is loaded up to 4 MiB, four times the size
// of a channel's set.
func TestLoadsHonourTheLimitsOfTheCache(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	source := r.builderOf(session, r.cache, r.store)
	for channelID, limit := range map[string]int{"large": 1 << 20, "~large": 4 << 20} {
		var last message.Entry
		for range keep {
			last = r.insert(message.Entry{Message: message.Message{
				ChannelID: channelID, FromID: "auth0|42", MsgType: "text", Content: strings.Repeat("x", 300_000),
			}})
		}
		r.mustDeliver(source, r.eventOf(last))
		size := 0
		for _, z := range r.raw(channelID) {
			size += len(z.Member.(string))
		}
		if size > limit || size < limit-400_000 {
			t.Errorf("%s takes %d bytes, want up to %d", channelID, size, limit)
		}
	}
}
