package feed

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// freshness is the maximum age of a message's state when it is published. An older state is first
// read again from the store, because the message may have been recalled in the meantime.
const freshness = time.Second

// messageState is a message as it was at the time asOf. A zero asOf means that the time is unknown.
type messageState struct {
	message message.Entry
	asOf    time.Time
}

// batch holds entries to be published, and the known state of their messages.
type batch struct {
	entries []message.Entry
	states  map[message.Place]messageState
	// applied holds, by message, the seq of its last change among the entries that were applied when
	// they were read. Their texts are in the messages only, so a state from before is of no use.
	applied map[message.Place]int64
}

func newBatch(entries []message.Entry) *batch {
	b := &batch{
		entries: entries, states: make(map[message.Place]messageState, len(entries)), applied: make(map[message.Place]int64),
	}
	now := time.Now()
	for i := range entries {
		e := &entries[i]
		if e.Kind != message.KindSend {
			if !e.Pending {
				b.applied[placeOf(e)] = max(b.applied[placeOf(e)], e.Seq)
			}
			continue
		}
		asOf := e.MsgTime
		if asOf.After(now.Add(freshness)) {
			asOf = time.Time{} // the clock that set it is ahead of ours, so its age is unknown
		}
		b.states[placeOf(e)] = messageState{*e, asOf}
	}
	return b
}

// placeOf returns the place of the message that an entry sends, edits or recalls.
func placeOf(e *message.Entry) message.Place {
	if e.Kind == message.KindSend {
		return message.Place{ChannelID: e.ChannelID, Seq: e.Seq}
	}
	return message.Place{ChannelID: e.ChannelID, Seq: e.TargetSeq}
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

// refresh reads all messages whose state is unknown, older than freshness, or from before a change
// that was applied, and applies the batch's other edits and recalls to them. A read may take so
// long that other states become too old, so refresh reads up to three times. If some are then still
// too old, they are used.
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

// stale returns the places of the messages whose state is unknown or older than freshness.
func (b *batch) stale(now time.Time) []message.Place {
	var places []message.Place
	seen := make(map[message.Place]bool)
	for i := range b.entries {
		p := placeOf(&b.entries[i])
		k, ok := b.states[p]
		if seen[p] || ok && now.Sub(k.asOf) <= freshness && k.message.ChangedSeq >= b.applied[p] {
			continue
		}
		seen[p] = true
		places = append(places, p)
	}
	return places
}

// read reads the messages at places into b.states. It fails unless the store returns all of them.
func (b *batch) read(ctx context.Context, store FeederStore, places []message.Place) error {
	began := time.Now()
	messages, err := store.Messages(ctx, places)
	if err != nil {
		return fmt.Errorf("read the messages of a batch: %w", err)
	}
	if len(messages) < len(places) {
		return fmt.Errorf("read the messages of a batch: got %d, want %d", len(messages), len(places))
	}
	for _, m := range messages {
		p := placeOf(&m)
		if m.ChangedSeq < b.applied[p] {
			return fmt.Errorf("message %d of %s lacks its change %d", m.Seq, m.ChannelID, b.applied[p])
		}
		if k, ok := b.states[p]; ok && k.message.ChangedSeq > m.ChangedSeq {
			m = k.message // an earlier read returned a newer state
		}
		b.states[p] = messageState{m, began}
	}
	return nil
}

// fold applies the batch's edits and recalls to the messages in b.states, because a read may not
// include them yet.
func (b *batch) fold() {
	messages := make([]message.Entry, 0, len(b.states))
	for _, k := range b.states {
		messages = append(messages, k.message)
	}
	message.Fold(messages, b.entries)
	for _, m := range messages {
		p := placeOf(&m)
		b.states[p] = messageState{m, b.states[p].asOf}
	}
}

// events returns the events to publish, one per entry. refresh must have succeeded before.
func (b *batch) events(epoch string) []message.Event {
	events := make([]message.Event, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		events[i] = message.Event{
			Kind: e.Kind, Epoch: epoch, Seq: e.Seq, Count: e.Count, Time: e.MsgTime,
			Message: b.states[placeOf(e)].message.Message, Traceparent: e.Traceparent,
		}
	}
	return events
}
