package feed

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// advanceEvery is the minimum time between two writes of a shard's rows; events that arrive
	// meanwhile are joined. With the time that a write takes, it keeps rows within the 100 ms that a
	// list of channels may be behind the log.
	advanceEvery = 50 * time.Millisecond
	// maxMoves is the maximum number of channels and senders together in one call of Rows.Advance.
	maxMoves = 4096
	// maxAdvances is the maximum number of concurrent calls of Rows.Advance by a node, over all its
	// shards. Rows serve lists, so if the store is overloaded they fall behind before messages do.
	maxAdvances = 2
)

// Rows writes channel rows. channel.Store documents Advance.
type Rows interface {
	Advance(ctx context.Context, moves []channel.Advance, now time.Time) error
}

// AdvancerConfig configures an Advancer.
type AdvancerConfig struct {
	Source Source
	Rows   Rows
	// Identity is that of the message store: its number of shards and its epoch are used.
	Identity message.Identity
	// Owner decides which shards are this node's; nil means all.
	Owner Owner
	// OnAdvance is called, possibly concurrently, with what was written; may be nil.
	OnAdvance func(moves []channel.Advance)
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Advancer advances the channel rows and the senders' read cursors according to the change stream.
// It consumes the stream separately from the Builder, so that a cache that cannot be written does
// not hold up the rows, nor the reverse. It confirms an event only after the rows include it, so
// that a crash loses none.
type Advancer struct {
	life   lifecycle.Base
	source Source
	rows   Rows
	id     message.Identity
	owner  Owner
	logger *slog.Logger
	// onAdvance may be nil.
	onAdvance func(moves []channel.Advance)
	// writeSlots holds one element per write in progress. Its capacity, maxAdvances, bounds them.
	writeSlots chan struct{}
}

// NewAdvancer returns an Advancer. Start starts it.
func NewAdvancer(config AdvancerConfig) *Advancer {
	return &Advancer{
		source: config.Source, rows: config.Rows, id: config.Identity, owner: config.Owner,
		logger: cmp.Or(config.Logger, slog.Default()), writeSlots: make(chan struct{}, maxAdvances), onAdvance: config.OnAdvance,
	}
}

// Start starts to consume the events of the shards that this node owns, and returns at once. See
// lifecycle.Service.
func (a *Advancer) Start(ctx context.Context) error {
	return eachShard(ctx, &a.life, a.id.Shards, a.run)
}

// Stop stops consuming and waits for the goroutines, even if ctx ends. Batches in progress are
// delivered again to the next consumer.
func (a *Advancer) Stop(ctx context.Context) error { return a.life.Stop(ctx) }

func (a *Advancer) run(ctx context.Context, shard int) {
	whileOwned(ctx, a.owner, shard, func(ctx context.Context) {
		next := time.Now()
		// The error can only be that ctx has ended.
		_ = retry(ctx, a.logger.With("shard", shard), "advance channel rows", func() error {
			return a.source.Consume(ctx, shard, func(ctx context.Context, events []message.Event) error {
				if err := lifecycle.Pause(ctx, time.Until(next)); err != nil {
					return err
				}
				select {
				case a.writeSlots <- struct{}{}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				began := time.Now()
				err := a.writeAdvances(ctx, events)
				<-a.writeSlots
				// The next write begins no earlier than twice the duration of this one after its start, to
				// spare a slow store.
				next = began.Add(max(advanceEvery, 2*time.Since(began)))
				return err
			})
		})
	})
}

// writeAdvances writes the changes of rows and cursors that events imply, in as few calls as
// possible.
func (a *Advancer) writeAdvances(ctx context.Context, events []message.Event) error {
	moves := a.fold(events)
	for len(moves) > 0 {
		n, size := 0, 0
		for n < len(moves) {
			size += 1 + len(moves[n].Senders)
			if n > 0 && size > maxMoves {
				break
			}
			n++
		}
		if err := a.rows.Advance(ctx, moves[:n], time.Now().UTC().Truncate(time.Millisecond)); err != nil {
			return err
		}
		if a.onAdvance != nil {
			a.onAdvance(moves[:n])
		}
		moves = moves[n:]
	}
	return nil
}

// fold joins events into one channel.Advance per channel. Events of another epoch are omitted: they
// belong to a log that the store no longer has.
func (a *Advancer) fold(events []message.Event) []channel.Advance {
	var moves []channel.Advance
	at := make(map[string]int)
	for i := range events {
		e := &events[i]
		if e.Epoch != a.id.Epoch {
			continue
		}
		n, ok := at[e.Message.ChannelID]
		if !ok {
			n = len(moves)
			at[e.Message.ChannelID] = n
			moves = append(moves, channel.Advance{ChannelID: e.Message.ChannelID})
		}
		m := &moves[n]
		m.Rev = max(m.Rev, e.Rev)
		if e.Seq > m.Head {
			m.Head, m.Count = e.Seq, e.Count
		}
		if e.Kind != message.KindSend {
			continue
		}
		m.LastMessage = max(m.LastMessage, e.Seq)
		if e.Time.After(m.Active) {
			m.Active = e.Time
		}
		if e.Message.FromID == message.ErasedUser {
			continue
		}
		if e.Seq > m.Senders[e.Message.FromID].Seq {
			if m.Senders == nil {
				m.Senders = make(map[string]channel.Cursor, 1)
			}
			m.Senders[e.Message.FromID] = channel.Cursor{Seq: e.Seq, Count: e.Count}
		}
	}
	return moves
}
