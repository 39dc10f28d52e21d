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
	// advanceEvery is the least time between two writes of a bucket's rows: what comes meanwhile is joined. With the write
	// itself it keeps rows within the 100 ms that a list of channels may be behind.
	advanceEvery = 50 * time.Millisecond
	// maxMoves is the most channels and senders in one write.
	maxMoves = 4096
	// maxAdvances is how many writes a node has under way at once, of all its buckets. Rows are for lists: when the store
	// has more to do than it can, they fall behind before messages do.
	maxAdvances = 2
)

// Rows are the channels' rows; channel.Store says what Advance promises.
type Rows interface {
	Advance(ctx context.Context, moves []channel.Advance, now time.Time) error
}

// AdvancerConfig is what an Advancer works with.
type AdvancerConfig struct {
	Source Source
	Rows   Rows
	// Identity is the store's.
	Identity message.Identity
	// Owner tells which buckets are this node's; nil means all.
	Owner Owner
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Advancer moves the channels' rows and the senders' read cursors forward after the change stream. It reads the stream
// by a consumer of its own, so a cache that can't be written does not hold up the rows, nor the other way round; and it
// confirms an event only once the rows have it, so none is left behind by a crash.
type Advancer struct {
	life   lifecycle.Base
	source Source
	rows   Rows
	id     message.Identity
	owner  Owner
	logger *slog.Logger
	// turns has room for the writes that may be under way.
	turns chan struct{}
}

// NewAdvancer makes an Advancer, which Start starts.
func NewAdvancer(config AdvancerConfig) *Advancer {
	return &Advancer{
		source: config.Source, rows: config.Rows, id: config.Identity, owner: config.Owner,
		logger: cmp.Or(config.Logger, slog.Default()), turns: make(chan struct{}, maxAdvances),
	}
}

// Start begins to consume and returns at once. See lifecycle.Service.
func (a *Advancer) Start(ctx context.Context) error {
	return eachBucket(ctx, &a.life, a.id.Buckets, a.run)
}

// Stop ends the work and waits for it. What was under way comes again to the next one that consumes.
func (a *Advancer) Stop(ctx context.Context) error { return a.life.Stop(ctx) }

func (a *Advancer) run(ctx context.Context, bucket int) {
	whileOwned(ctx, a.owner, bucket, func(ctx context.Context) {
		next := time.Now()
		// The error can only be that ctx has ended.
		_ = retry(ctx, a.logger.With("bucket", bucket), "moving channel rows", func() error {
			return a.source.Consume(ctx, bucket, func(ctx context.Context, events []message.Event) error {
				if err := sleep(ctx, time.Until(next)); err != nil {
					return err
				}
				select {
				case a.turns <- struct{}{}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				began := time.Now()
				err := a.move(ctx, events)
				<-a.turns
				// A store that is slow is not asked more often than it can answer.
				next = began.Add(max(advanceEvery, 2*time.Since(began)))
				return err
			})
		})
	})
}

// move writes what events say of rows and cursors, in as few calls as may be.
func (a *Advancer) move(ctx context.Context, events []message.Event) error {
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
		moves = moves[n:]
	}
	return nil
}

// fold joins events into one move per channel. Those of another epoch are of a log that the store no longer has.
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
		if e.Seq > m.Head {
			m.Head, m.Count = e.Seq, e.Count
		}
		if e.Kind != message.KindSend {
			continue
		}
		m.LastMessage = max(m.LastMessage, e.Seq)
		if e.Seq > m.Senders[e.Message.FromID].Seq {
			if m.Senders == nil {
				m.Senders = make(map[string]channel.Cursor, 1)
			}
			m.Senders[e.Message.FromID] = channel.Cursor{Seq: e.Seq, Count: e.Count}
		}
	}
	return moves
}
