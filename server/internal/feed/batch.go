package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// freshness is the maximum age of a message's state when it is published. An older state is first
// read again from the store, because the message may have been recalled in the meantime.
const freshness = time.Second

// messageKey identifies a message by its channel and its seq.
type messageKey struct {
	channelID string
	seq       int64
}

// messageState is a message as it was at the time asOf. A zero asOf means that the time is unknown.
type messageState struct {
	message message.Entry
	asOf    time.Time
}

// batch holds entries to be published, and the known state of their messages.
type batch struct {
	entries []message.Entry
	states  map[messageKey]messageState
}

func newBatch(entries []message.Entry) *batch {
	b := &batch{entries: entries, states: make(map[messageKey]messageState, len(entries))}
	now := time.Now()
	for i := range entries {
		e := &entries[i]
		if e.Kind != message.KindSend {
			continue
		}
		asOf := e.MsgTime
		if asOf.After(now.Add(freshness)) {
			asOf = time.Time{} // the clock that set it is ahead of ours, so its age is unknown
		}
		b.states[keyOf(e)] = messageState{*e, asOf}
	}
	return b
}

// keyOf returns the key of the message that an entry sends, edits or recalls.
func keyOf(e *message.Entry) messageKey {
	if e.Kind == message.KindSend {
		return messageKey{e.ChannelID, e.Seq}
	}
	return messageKey{e.ChannelID, e.TargetSeq}
}

// apply calls the store's Apply for the batch's edits and recalls, because their writer may have
// died before doing so. Repeats are harmless.
func (b *batch) apply(ctx context.Context, store FeederStore) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range b.entries {
		if e := &b.entries[i]; e.Kind != message.KindSend {
			group.Go(func() error {
				if err := store.Apply(ctx, e); err != nil {
					return fmt.Errorf("apply entry %d of %s: %w", e.Seq, e.ChannelID, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// refresh reads all messages whose state is unknown or older than freshness, and applies the
// batch's edits and recalls to them. A read may take so long that other states become too old, so
// refresh reads up to three times. If some are then still too old, they are used.
func (b *batch) refresh(ctx context.Context, store FeederStore) error {
	for range 3 {
		stale := b.stale(time.Now())
		if len(stale) == 0 {
			break
		}
		if err := b.read(ctx, store, stale); err != nil {
			return err
		}
	}
	b.fold()
	return nil
}

// stale returns the seqs of the messages whose state is unknown or older than freshness, by
// channel.
func (b *batch) stale(now time.Time) map[string][]int64 {
	seqs := make(map[string][]int64)
	seen := make(map[messageKey]bool)
	for i := range b.entries {
		p := keyOf(&b.entries[i])
		k, ok := b.states[p]
		if seen[p] || ok && now.Sub(k.asOf) <= freshness {
			continue
		}
		seen[p] = true
		seqs[p.channelID] = append(seqs[p.channelID], p.seq)
	}
	return seqs
}

// read reads the messages with the given seqs, by channel, into b.states. It fails unless the store
// returns all of them.
func (b *batch) read(ctx context.Context, store FeederStore, stale map[string][]int64) error {
	var mu sync.Mutex // guards b.states
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for channelID, seqs := range stale {
		group.Go(func() error {
			began := time.Now()
			messages, err := store.Messages(ctx, channelID, seqs)
			if err != nil {
				return fmt.Errorf("read messages of %s: %w", channelID, err)
			}
			if len(messages) < len(seqs) {
				return fmt.Errorf("read messages of %s: got %d, want %d", channelID, len(messages), len(seqs))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range messages {
				p := messageKey{channelID, m.Seq}
				if k, ok := b.states[p]; ok && k.message.ChangedSeq > m.ChangedSeq {
					m = k.message // an earlier read returned a newer state
				}
				b.states[p] = messageState{m, began}
			}
			return nil
		})
	}
	return group.Wait()
}

// fold applies the batch's edits and recalls to the messages in b.states, because a read may not
// include them yet.
func (b *batch) fold() {
	pieces := make(map[string][]message.Entry)
	seen := make(map[messageKey]bool)
	for i := range b.entries {
		e := &b.entries[i]
		if p := keyOf(e); !seen[p] {
			seen[p] = true
			pieces[p.channelID] = append(pieces[p.channelID], b.states[p].message)
		}
		if e.Kind != message.KindSend {
			pieces[e.ChannelID] = append(pieces[e.ChannelID], *e)
		}
	}
	for _, piece := range pieces {
		message.Fold(piece)
		for i := range piece {
			if piece[i].Kind == message.KindSend {
				p := keyOf(&piece[i])
				b.states[p] = messageState{piece[i], b.states[p].asOf}
			}
		}
	}
}

// events returns the events to publish, one per entry. refresh must have succeeded before.
func (b *batch) events(epoch string) []message.Event {
	events := make([]message.Event, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		events[i] = message.Event{
			Kind: e.Kind, Epoch: epoch, Seq: e.Seq, Count: e.Count, Time: e.MsgTime,
			Message: b.states[keyOf(e)].message.Message, Traceparent: e.Traceparent,
		}
	}
	return events
}
