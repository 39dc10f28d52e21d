package feed

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	// expired holds the messages that edits and recalls of the batch would change but that have
	// expired. The events of these changes are message.Event.Passed.
	expired map[message.Place]bool
	states  map[message.Place]messageState
	// applied holds, by message, the seq of its last change among the entries that were applied when
	// they were read. Their texts are in the messages only, so a state from before is of no use.
	applied map[message.Place]int64
}

// newBatch returns a batch of the entries that have not expired. An entry expires only after it was
// published.
func newBatch(entries []message.Entry) *batch {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e message.Entry) bool { return e.Kind == message.KindExpired })
	b := &batch{
		entries: entries, states: make(map[message.Place]messageState, len(entries)), applied: make(map[message.Place]int64),
		expired: make(map[message.Place]bool),
	}
	now := time.Now()
	for i := range entries {
		e := &entries[i]
		if e.Kind != message.KindSend {
			if e.Kind.Changes() && !e.Pending {
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

// apply calls the store's Apply for the batch's edits and recalls that were pending when they were
// read, because their writer may have died before doing so. Repeats are harmless.
func (b *batch) apply(ctx context.Context, store FeederStore) error {
	var changes []*message.Entry
	for i := range b.entries {
		if e := &b.entries[i]; e.Kind.Changes() && e.Pending {
			changes = append(changes, &b.entries[i])
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := store.Apply(ctx, changes...); err != nil {
		return fmt.Errorf("apply %d changes, the first is entry %d of %s: %w", len(changes), changes[0].Seq, changes[0].ChannelID, err)
	}
	return nil
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
		if b.entries[i].Kind == message.KindAccess {
			continue
		}
		p := placeOf(&b.entries[i])
		k, ok := b.states[p]
		if seen[p] || b.expired[p] || ok && now.Sub(k.asOf) <= freshness && k.message.ChangedSeq >= b.applied[p] {
			continue
		}
		seen[p] = true
		places = append(places, p)
	}
	return places
}

// read reads the messages at places into b.states. It fails unless the store returns all of them
// that have not expired.
func (b *batch) read(ctx context.Context, store FeederStore, places []message.Place) error {
	began := time.Now()
	messages, err := store.Messages(ctx, places)
	if err != nil {
		return fmt.Errorf("read the messages of a batch: %w", err)
	}
	if len(messages) < len(places) {
		if err := b.markExpired(ctx, store, places, messages); err != nil {
			return err
		}
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

// markExpired records the places that are missing from messages in b.expired. It fails if one of
// them has not expired.
func (b *batch) markExpired(ctx context.Context, store FeederStore, places []message.Place, messages []message.Entry) error {
	found := make(map[message.Place]bool, len(messages))
	for i := range messages {
		found[placeOf(&messages[i])] = true
	}
	for _, p := range places {
		if found[p] {
			continue
		}
		head, err := store.Head(ctx, p.ChannelID)
		if err != nil {
			return fmt.Errorf("read the messages of a batch: %w", err)
		}
		if p.Seq >= head.First() {
			return fmt.Errorf("read the messages of a batch: message %d of %s is missing", p.Seq, p.ChannelID)
		}
		b.expired[p] = true
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
		if e.Kind == message.KindAccess || b.expired[placeOf(e)] {
			kind := message.KindExpired
			if e.Kind == message.KindAccess {
				kind = message.KindAccess
			}
			events[i] = message.Event{
				Kind: kind, Passed: true, Epoch: epoch, Seq: e.Seq, Count: e.Count, Rev: e.Rev, Time: e.MsgTime,
				Message: message.Message{ChannelID: e.ChannelID}, Traceparent: e.Traceparent,
			}
			continue
		}
		m := b.states[placeOf(e)].message.Message
		events[i] = message.Event{
			Kind: e.Kind, Epoch: epoch, Seq: e.Seq, Count: e.Count, Rev: max(e.Rev, m.Rev), Time: e.MsgTime,
			Message: m, Traceparent: e.Traceparent,
		}
	}
	return events
}
