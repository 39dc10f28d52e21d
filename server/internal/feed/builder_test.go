package feed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
)

// onLayouts runs a test with a channel and with a session, whose cached sets have different
// layouts.
func onLayouts(t *testing.T, test func(t *testing.T, room string)) {
	t.Helper()
	for name, room := range map[string]string{"channel": "room", "session": "~room"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, room)
		})
	}
}

func (r *rig) mustMirror(channelID string) {
	r.t.Helper()
	if err := r.mirrors(channelID); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) mustBeGone(channelID string) {
	r.t.Helper()
	if n := len(r.raw(channelID)); n != 0 {
		r.t.Fatalf("%s has a set of %d", channelID, n)
	}
}

func TestGapRebuildsOnSendAndDeletesOnChange(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		source := r.builderOnly(r.cache, r.store)
		var sent message.Entry
		var earlier string
		for i := range 8 {
			sent = r.send(room, fmt.Sprint(i))
			r.mustDeliver(source, r.eventOf(sent))
			r.mustMirror(room)
			if i == 4 {
				earlier = r.client.Dump(t.Context(), key(room)).Val()
			}
		}
		// Redis is restored to an earlier state.
		fallBehind := func() {
			if err := r.client.RestoreReplace(t.Context(), key(room), time.Hour, earlier).Err(); err != nil {
				t.Fatal(err)
			}
		}
		fallBehind()
		r.mustDeliver(source, r.eventOf(r.send(room, "after the hole")))
		r.mustMirror(room)
		for _, change := range []func() message.Entry{
			func() message.Entry { return r.edit(sent, "x") }, func() message.Entry { return r.recall(sent) },
		} {
			fallBehind()
			r.mustDeliver(source, r.eventOf(change()))
			r.mustBeGone(room)
			r.mustDeliver(source, r.eventOf(r.send(room, "again")))
			r.mustMirror(room)
		}
	})
}

func TestGapInStream(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		source := r.builderOnly(r.cache, r.store)
		first := r.send(room, "1")
		r.mustDeliver(source, r.eventOf(first))
		r.send(room, "never delivered")
		edit, last := r.edit(first, "x"), r.send(room, "4")
		r.mustDeliver(source, r.eventOf(edit), r.eventOf(last))
		r.mustMirror(room)
		r.send(room, "never delivered")
		r.mustDeliver(source, r.eventOf(r.edit(first, "y")))
		r.mustBeGone(room)
	})
}

func TestRedeliveryChangesNothing(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		source := r.builderOnly(r.cache, r.store)
		var batch []message.Event
		sent := r.send(room, "s3cr3t")
		batch = append(batch, r.eventOf(sent)) // with its text, as published
		for i := range 5 {
			batch = append(batch, r.eventOf(r.send(room, fmt.Sprint(i))))
		}
		batch = append(batch, r.eventOf(r.edit(sent, "s3cr3t 2")))
		batch = append(batch, r.eventOf(r.recall(sent)))
		r.mustDeliver(source, batch...)
		r.mustMirror(room)
		r.age(room)
		before := r.raw(room)
		for from := range batch {
			r.mustDeliver(source, batch[from:]...)
			r.mustDeliver(source, batch[:from+1]...)
		}
		if diff := cmp.Diff(before, r.raw(room)); diff != "" {
			t.Error(diff)
		}
		r.expires(room, time.Hour)
		// If the set is gone, a late redelivery of the send does not build one with the recalled text.
		if err := r.client.Del(t.Context(), key(room)).Err(); err != nil {
			t.Fatal(err)
		}
		r.mustDeliver(source, batch[0])
		r.mustMirror(room)
		r.lacks("s3cr3t")
	})
}

func TestAnotherEpoch(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		old := r.store.Identity().Epoch
		source := r.builderOnly(r.cache, r.store)
		sent := r.send(room, "1")
		oldEvent := r.eventOf(sent)
		r.mustDeliver(source, oldEvent)
		epoch, err := r.store.NewEpoch(t.Context())
		if err != nil || epoch == old {
			t.Fatal(epoch, err)
		}
		// Events of the old epoch are ignored, even if their seq is beyond the end of the current log.
		before := r.raw(room)
		oldEvent.Seq, oldEvent.Message.Seq = 999, 999
		r.mustDeliver(source, oldEvent)
		if diff := cmp.Diff(before, r.raw(room)); diff != "" {
			t.Fatal(diff)
		}
		r.mustDeliver(source, r.eventOf(r.edit(sent, "x")))
		r.mustBeGone(room)
		r.mustDeliver(source, r.eventOf(r.send(room, "3")))
		r.mustMirror(room)
		if _, err = r.store.NewEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.mustDeliver(source, r.eventOf(r.send(room, "4")))
		r.mustMirror(room)
	})
}

func TestBatchOfManyChannels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	source := r.builderOnly(r.cache, r.store)
	var batch []message.Event
	for i := range 256 {
		batch = append(batch, r.eventOf(r.send(fmt.Sprintf("c%d", i%40), fmt.Sprint(i))))
	}
	r.mustDeliver(source, batch[:128]...)
	r.mustDeliver(source, batch[128:]...)
	for i := range 40 {
		r.mustMirror(fmt.Sprintf("c%d", i))
	}
}

// A rebuild applies the edits and recalls that the store has not applied to their messages yet.
func TestRebuildKeepsUnappliedRecall(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		sent, edited := r.send(room, "s3cr3t"), r.send(room, "draft")
		source := r.builderOnly(r.cache, r.store)
		recall := r.insert(cacheChangeOf(sent, message.KindRecall, ""))
		edit := r.insert(cacheChangeOf(edited, message.KindEdit, "final"))
		r.mustDeliver(source, r.eventOf(r.send(room, "last")))
		r.lacks("s3cr3t")
		r.lacks("draft\",")
		r.apply(recall)
		r.apply(edit)
		r.mustMirror(room)
	})
}

// laggingReader is a store whose next calls of Entries, as many as calls says, do not return
// entries after the seq above.
type laggingReader struct {
	feed.BuilderStore
	above int64
	calls atomic.Int64
}

func (l *laggingReader) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	if l.calls.Add(-1) >= 0 {
		r.Before = l.above + 1
	}
	return l.BuilderStore.Entries(ctx, channelID, r)
}

func TestRebuildWaitsForLaggingStore(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		lagging := &laggingReader{BuilderStore: r.store, above: 1}
		lagging.calls.Store(4)
		source := r.builderOnly(r.cache, lagging)
		r.send(room, "1")
		r.mustDeliver(source, r.eventOf(r.send(room, "2")))
		r.mustMirror(room)
	})
}

func TestMissingEntryDoesNotBlockBatch(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		lagging := &laggingReader{BuilderStore: r.store, above: 1}
		source := r.builderOnly(r.cache, lagging)
		r.mustDeliver(source, r.eventOf(r.send(room, "1")))
		r.mustMirror(room)
		r.send(room, "never delivered")
		lagging.calls.Store(1 << 40)
		r.mustDeliver(source, r.eventOf(r.send(room, "3")))
		r.mustBeGone(room)
		lagging.calls.Store(0)
		r.mustDeliver(source, r.eventOf(r.send(room, "4")))
		r.mustMirror(room)
	})
}

// failingReader is a store whose next calls of Entries and Head fail, as many of each as the field
// says.
type failingReader struct {
	feed.BuilderStore
	entries, head atomic.Int64
}

func (f *failingReader) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	if f.entries.Add(-1) >= 0 {
		return nil, errProvoked
	}
	return f.BuilderStore.Entries(ctx, channelID, r)
}

func (f *failingReader) Head(ctx context.Context, channelID string) (message.Head, error) {
	if f.head.Add(-1) >= 0 {
		return message.Head{}, errProvoked
	}
	return f.BuilderStore.Head(ctx, channelID)
}

func TestStoreFailureRedeliversBatch(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		failing := &failingReader{BuilderStore: r.store}
		source := r.builderOnly(r.cache, failing)
		event := r.eventOf(r.send(room, "1"))
		failing.entries.Store(1)
		if err := source.deliver(event); !errors.Is(err, errProvoked) {
			t.Fatal(err)
		}
		r.mustBeGone(room)
		// If reading the head fails after the set is written, the set may be out of date. It must be
		// dropped: the repeated batch would find nothing to do.
		failing.head.Store(1)
		if err := source.deliver(event); !errors.Is(err, errProvoked) {
			t.Fatal(err)
		}
		r.mustBeGone(room)
		r.mustDeliver(source, event)
		r.mustMirror(room)
	})
}

// racedCache calls before once, ahead of the first Replace.
type racedCache struct {
	feed.CacheWriter
	before func()
}

func (c *racedCache) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	if before := c.before; before != nil {
		c.before = nil
		before()
	}
	return c.CacheWriter.Replace(ctx, channelID, began, log)
}

func TestConcurrentRecallDuringRebuild(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		sent := r.send(room, "s3cr3t")
		raced := &racedCache{CacheWriter: r.cache}
		other := newRig(t) // only its builder is used, with the cache and the store of r
		otherSource := other.builderOnly(r.cache, r.store)
		raced.before = func() {
			r.mustDeliver(otherSource, r.eventOf(r.recall(sent)))
			r.mustBeGone(room)
		}
		source := r.builderOnly(raced, r.store)
		r.mustDeliver(source, message.Event{
			Epoch: r.store.Identity().Epoch, Seq: 1, Count: 1, Time: sent.MsgTime, Message: sent.Message,
		})
		r.mustMirror(room)
		r.lacks("s3cr3t")
	})
}

// stoppedCache passes a time 20 s too early to Replace until Replace fails with ErrStaleLoad once,
// as if the process had been suspended after its load. stale counts these failures.
type stoppedCache struct {
	feed.CacheWriter
	stale atomic.Int64
}

func (c *stoppedCache) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	if c.stale.Load() == 0 {
		began = began.Add(-20 * time.Second)
	}
	err := c.CacheWriter.Replace(ctx, channelID, began, log)
	if errors.Is(err, feed.ErrStaleLoad) {
		c.stale.Add(1)
	}
	return err
}

func TestStaleLoadIsRetried(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		stopped := &stoppedCache{CacheWriter: r.cache}
		source := r.builderOnly(stopped, r.store)
		r.mustDeliver(source, r.eventOf(r.send(room, "1")))
		r.mustMirror(room)
		if n := stopped.stale.Load(); n != 1 {
			t.Errorf("%d loads were refused, want 1", n)
		}
	})
}

func TestVanishingSetsFailBatch(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, room string) {
		r := newRig(t)
		source := r.builderOnly(vanishing{r.cache, r}, r.store)
		if err := source.deliver(r.eventOf(r.send(room, "1"))); err == nil {
			t.Fatal("no error")
		}
	})
}

// vanishing is a cache that deletes everything after each Replace.
type vanishing struct {
	feed.CacheWriter
	r *rig
}

func (v vanishing) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	if err := v.CacheWriter.Replace(ctx, channelID, began, log); err != nil {
		return err
	}
	return v.r.client.FlushAll(ctx).Err()
}
