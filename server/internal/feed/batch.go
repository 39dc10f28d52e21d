package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// freshness is how old what is known of a message may be when it is published. Older is read again: in the meantime the
// message may have been recalled.
const freshness = time.Second

// place is where a message is.
type place struct {
	channelID string
	seq       int64
}

// known is a message as it was at a time.
type known struct {
	message message.Entry
	asOf    time.Time
}

// batch is entries on their way to the stream, and what is known of the messages that they are about.
type batch struct {
	entries  []message.Entry
	messages map[place]known
}

func newBatch(entries []message.Entry) *batch {
	b := &batch{entries: entries, messages: make(map[place]known, len(entries))}
	now := time.Now()
	for i := range entries {
		e := &entries[i]
		if e.Kind != message.KindSend {
			continue
		}
		asOf := e.MsgTime
		if asOf.After(now.Add(freshness)) {
			asOf = time.Time{} // by a clock that is ahead of ours: its age can't be told
		}
		b.messages[placeOf(e)] = known{*e, asOf}
	}
	return b
}

// placeOf is where the message is that an entry is about.
func placeOf(e *message.Entry) place {
	if e.Kind == message.KindSend {
		return place{e.ChannelID, e.Seq}
	}
	return place{e.ChannelID, e.TargetSeq}
}

// apply has the store apply the batch's edits and recalls. Whoever appended one may have died before doing so.
func (b *batch) apply(ctx context.Context, log Log) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range b.entries {
		if e := &b.entries[i]; e.Kind != message.KindSend {
			group.Go(func() error {
				if err := log.Apply(ctx, e); err != nil {
					return fmt.Errorf("apply entry %d of %s: %w", e.Seq, e.ChannelID, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// refresh reads all messages that are not known, or not well enough any more. Reading itself takes time, so it looks
// again afterwards; a store that takes longer than a second each time is believed at last.
func (b *batch) refresh(ctx context.Context, log Log) error {
	for range 3 {
		stale := b.stale(time.Now())
		if len(stale) == 0 {
			break
		}
		if err := b.read(ctx, log, stale); err != nil {
			return err
		}
	}
	b.fold()
	return nil
}

// stale gives the places to be read, by channel.
func (b *batch) stale(now time.Time) map[string][]int64 {
	places := make(map[string][]int64)
	seen := make(map[place]bool)
	for i := range b.entries {
		p := placeOf(&b.entries[i])
		k, ok := b.messages[p]
		if seen[p] || ok && now.Sub(k.asOf) <= freshness {
			continue
		}
		seen[p] = true
		places[p.channelID] = append(places[p.channelID], p.seq)
	}
	return places
}

// read reads messages as they are now.
func (b *batch) read(ctx context.Context, log Log, places map[string][]int64) error {
	var mu sync.Mutex // guards b.messages
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for channelID, seqs := range places {
		group.Go(func() error {
			began := time.Now()
			messages, err := log.Messages(ctx, channelID, seqs)
			if err != nil {
				return fmt.Errorf("read messages of %s: %w", channelID, err)
			}
			if len(messages) < len(seqs) {
				return fmt.Errorf("read messages of %s: %d of %d are there", channelID, len(messages), len(seqs))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range messages {
				p := place{channelID, m.Seq}
				if k, ok := b.messages[p]; ok && k.message.ChangedSeq > m.ChangedSeq {
					m = k.message // the store has shown it newer before
				}
				b.messages[p] = known{m, began}
			}
			return nil
		})
	}
	return group.Wait()
}

// fold applies the batch's edits and recalls to its messages: a read may not show yet what was applied.
func (b *batch) fold() {
	pieces := make(map[string][]message.Entry)
	seen := make(map[place]bool)
	for i := range b.entries {
		e := &b.entries[i]
		if p := placeOf(e); !seen[p] {
			seen[p] = true
			pieces[p.channelID] = append(pieces[p.channelID], b.messages[p].message)
		}
		if e.Kind != message.KindSend {
			pieces[e.ChannelID] = append(pieces[e.ChannelID], *e)
		}
	}
	for _, piece := range pieces {
		message.Fold(piece)
		for i := range piece {
			if piece[i].Kind == message.KindSend {
				p := placeOf(&piece[i])
				b.messages[p] = known{piece[i], b.messages[p].asOf}
			}
		}
	}
}

// events is the batch as it is published.
func (b *batch) events(epoch string) []message.Event {
	events := make([]message.Event, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		events[i] = message.Event{
			Kind: e.Kind, Epoch: epoch, Seq: e.Seq, Count: e.Count, Time: e.MsgTime,
			Message: b.messages[placeOf(e)].message.Message, Traceparent: e.Traceparent,
		}
	}
	return events
}
