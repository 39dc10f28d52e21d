package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

var concurrentContracts = []contract{
	{"ConcurrentInsertsAndReads", concurrently},
	{"ConcurrentAppliesLeaveNoText", applyConcurrently},
}

const (
	raceRounds   = 40
	raceChannels = 3
)

// raceLog is one channel's log while it is written and read concurrently.
type raceLog struct {
	draft
	// acked is the highest seq whose Insert has returned.
	acked atomic.Int64
	// shown is the highest seq that a read or the feed has returned.
	shown atomic.Int64

	mu sync.Mutex
	// asked holds every entry passed to Insert, or about to be. Guarded by mu.
	asked []message.Entry
}

func (l *raceLog) at(seq int64) (message.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq < 1 || seq > int64(len(l.asked)) {
		return message.Entry{}, false
	}
	return l.asked[seq-1], true
}

// check verifies that entries are contiguous from after + 1 on and equal those in asked.
func (l *raceLog) check(after int64, entries []message.Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.Seq != after+1 {
			return fmt.Errorf("%s: entry %d follows %d", l.channel, e.Seq, after)
		}
		after = e.Seq
		want, ok := l.at(e.Seq)
		if !ok {
			return fmt.Errorf("%s: entry %d was never inserted", l.channel, e.Seq)
		}
		if d := cmp.Diff(want, *e, cmpopts.EquateEmpty()); d != "" {
			return fmt.Errorf("%s: entry %d (-want +got):\n%s", l.channel, e.Seq, d)
		}
	}
	for {
		was := l.shown.Load()
		if after <= was || l.shown.CompareAndSwap(was, after) {
			return nil
		}
	}
}

// concurrently tests that reads and feeds stay consistent while the logs are written. It runs one
// writer for each shard, as the contract allows, one reader and one feed.
func concurrently(t *testing.T, p *fixture) {
	var logs []*raceLog
	ctx, stopReaders := context.WithCancel(t.Context())
	defer stopReaders()
	writers, _ := errgroup.WithContext(ctx)
	readers, readCtx := errgroup.WithContext(ctx)
	for b := range shards {
		own := make([]*raceLog, 0, raceChannels)
		for _, name := range channelsOf(b, raceChannels) {
			own = append(own, &raceLog{draft: draft{channel: name}})
		}
		logs = append(logs, own...)
		writers.Go(func() error { return raceWrite(t.Context(), p, b, own) })
		readers.Go(func() error { return raceRead(readCtx, p, own) })
		readers.Go(func() error { return raceFeed(readCtx, t, p, b, own) })
	}
	if err := writers.Wait(); err != nil {
		t.Errorf("write: %v", err)
	}
	stopReaders()
	if err := readers.Wait(); err != nil {
		t.Fatalf("read: %v", err)
	}
	p.reopen(t)
	for _, l := range logs {
		got := p.all(t, l.channel)
		if int64(len(got)) < max(l.acked.Load(), l.shown.Load()) {
			t.Fatalf("%s has %d entries; %d were acknowledged and %d shown", l.channel, len(got), l.acked.Load(), l.shown.Load())
		}
		equal(t, l.channel, l.asked, got)
	}
}

func raceWrite(ctx context.Context, p *fixture, shard int, logs []*raceLog) error {
	for round := range raceRounds {
		var batch []message.Entry
		for i, l := range logs {
			n := (round+i)%5 + 1
			entries := l.sends(n)
			l.mu.Lock()
			l.asked = append(l.asked, entries...)
			l.mu.Unlock()
			batch = append(batch, entries...)
		}
		if n, err := p.Insert(ctx, shard, batch); err != nil || n != len(batch) {
			return fmt.Errorf("insert: %d of %d, %w", n, len(batch), err)
		}
		for _, l := range logs {
			l.acked.Store(l.seq)
		}
	}
	return nil
}

// raceRead reads the logs with every read method until ctx ends, and returns the first wrong
// result.
func raceRead(ctx context.Context, p *fixture, logs []*raceLog) error {
	for ctx.Err() == nil {
		for _, l := range logs {
			if err := raceReadOne(ctx, p, l); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func raceReadOne(ctx context.Context, p *fixture, l *raceLog) error {
	acked := l.acked.Load()
	head, err := p.Head(ctx, l.channel)
	if err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if head.Seq < acked {
		return fmt.Errorf("%s: head %d after %d was acknowledged", l.channel, head.Seq, acked)
	}
	if last, ok := l.at(head.Seq); ok {
		if want := (message.Head{Seq: last.Seq, Count: last.Count, MsgTime: last.MsgTime, Bytes: last.Bytes, Rev: last.Rev}); !cmp.Equal(want, head) {
			return fmt.Errorf("%s: head %+v, want %+v", l.channel, head, want)
		}
		found, err := p.ByClientKeys(ctx, l.channel, []message.ClientKey{keyOf(&last)})
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%s: by client key of the head %d: %d, %w", l.channel, head.Seq, len(found), err)
		}
		if _, ok, err := targetOf(ctx, p, l.channel, last.MsgID); err != nil || !ok {
			return fmt.Errorf("%s: target at the head %d: %v, %w", l.channel, head.Seq, ok, err)
		}
	}
	after := max(0, head.Seq-20)
	entries, err := p.Entries(ctx, l.channel, message.Range{After: after, Limit: 1000})
	if err != nil {
		return fmt.Errorf("entries: %w", err)
	}
	if err := l.check(after, entries); err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	// Returned entries are durable, so the head includes them.
	last := entries[len(entries)-1].Seq
	if head, err = p.Head(ctx, l.channel); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if head.Seq < last {
		return fmt.Errorf("%s: head %d after entry %d was shown", l.channel, head.Seq, last)
	}
	return nil
}

// raceFeed follows a shard's feed until ctx ends, and checks its entries as raceRead does.
func raceFeed(ctx context.Context, t tester, p *fixture, shard int, logs []*raceLog) error {
	f, err := p.OpenFeed(ctx, shard)
	if err != nil {
		return fmt.Errorf("open feed: %w", err)
	}
	byChannel := map[string]*raceLog{}
	seen := map[string]int64{}
	for _, l := range logs {
		byChannel[l.channel] = l
	}
	for ctx.Err() == nil {
		entries, err := f.Next(ctx, 16)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("next: %w", err)
		}
		for i := range entries {
			e := &entries[i]
			if e.Seq > seen[e.ChannelID]+1 {
				return fmt.Errorf("feed of %s skipped from %d to %d", e.ChannelID, seen[e.ChannelID], e.Seq)
			}
			seen[e.ChannelID] = max(seen[e.ChannelID], e.Seq)
			if err := byChannel[e.ChannelID].check(e.Seq-1, entries[i:i+1]); err != nil {
				return fmt.Errorf("feed: %w", err)
			}
		}
		if err := f.Published(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("published: %w", err)
		}
	}
	return f.Close(context.WithoutCancel(t.Context()))
}

// applyConcurrently tests that no text of a recalled message is left after its edits and its recall
// were applied at the same time.
func applyConcurrently(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	sent := d.sends(40)
	p.insert(t, sent...)
	edits := make([][]message.Entry, len(sent))
	var applies []message.Entry
	for i := range sent {
		edits[i] = []message.Entry{d.edit(&sent[i], "edited once"), d.edit(&sent[i], "edited twice")}
		applies = append(applies, edits[i]...)
	}
	for i := range sent {
		applies = append(applies, d.recall(&sent[i]))
	}
	p.insert(t, applies...)
	var g errgroup.Group
	for i := range applies {
		g.Go(func() error { return p.Apply(t.Context(), &applies[i]) })
	}
	// The feed applies all at once.
	all := make([]*message.Entry, len(applies))
	for i := range applies {
		all[i] = &applies[i]
	}
	g.Go(func() error { return p.Apply(t.Context(), all...) })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range sent {
		wantNoText(t, p, sent[i], edits[i]...)
	}
}
