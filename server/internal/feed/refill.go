package feed

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// maxRefills bounds the channels of a shard that wait for a refill.
	maxRefills = 256
	// refillTimeout bounds one refill. Events of the shard wait meanwhile, and the cache refuses
	// messages that were read longer ago.
	refillTimeout = 2 * time.Second
)

// turn lets one part of a shard's work run at a time. It holds a value while none runs.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

// take waits for the turn and calls fn. It returns an error without calling fn if ctx ends first.
func (t turn) take(ctx context.Context, fn func() error) error {
	select {
	case <-t:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { t <- struct{}{} }()
	return fn()
}

// refills holds, by shard, the channels that wait for a refill.
type refills []chan refill

// refill is a call of Builder.Refill.
type refill struct {
	channelID string
	seq       int64
}

func newRefills(shards int) refills {
	r := make(refills, shards)
	for i := range r {
		r[i] = make(chan refill, maxRefills)
	}
	return r
}

// Refill asks the Builder to cache a channel again if it has no set, or one that does not include
// the entry at seq. It returns at once. The request is lost if many others are waiting, or if the
// store or the cache fails. It waits while this node does not own the channel's shard. Safe for
// concurrent use, also before Start and after Stop.
//
// A refill runs between two batches of events. So an entry is either in what the refill reads, or
// its event comes later and is applied to the new set: a refill never brings back a recalled text.
func (b *Builder) Refill(channelID string, seq int64) {
	select {
	case b.refills[message.Shard(channelID, len(b.refills))] <- refill{channelID, seq}:
	default:
	}
}

// refillAll refills the channels of a shard, one at a time, until ctx ends.
func (b *Builder) refillAll(ctx context.Context, shard int, turn turn) {
	for {
		select {
		case r := <-b.refills[shard]:
			err := turn.take(ctx, func() error { return b.refill(ctx, r) })
			if err != nil && ctx.Err() == nil {
				b.logger.DebugContext(ctx, "refilling the cache failed", "channel_id", r.channelID, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// refill rebuilds a channel's set, unless it includes the entry that was asked for.
func (b *Builder) refill(ctx context.Context, r refill) error {
	ctx, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	page, err := b.cache.Page(ctx, r.channelID, message.Range{Desc: true, Limit: 1, MessagesOnly: true})
	if err != nil {
		return err
	}
	if page.Epoch == b.store.Identity().Epoch && page.Newest >= r.seq {
		return nil
	}
	if page.Epoch == "" { // absent, or damaged: Replace would leave a damaged set that reaches as far
		if err := b.cache.Drop(ctx, r.channelID); err != nil {
			return err
		}
	}
	b.metrics.Refills.Add(ctx, 1)
	_, err = b.rebuild(ctx, r.channelID, 0)
	if err == nil {
		return nil
	}
	// What rebuild wrote before it could look at the log again may lack a later recall.
	drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), refillTimeout)
	defer cancel()
	return errors.Join(err, b.cache.Drop(drop, r.channelID))
}
