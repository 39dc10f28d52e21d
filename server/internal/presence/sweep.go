package presence

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

var errNotSwept = errors.New("the step was refused")

const (
	// sweepConcurrency bounds the shards that are swept at the same time.
	sweepConcurrency = 16
	// sweepAgainAfter is when a shard is swept a second time. A failover may lose the fence or the
	// end of the log, and where no node has read the lost entries, none notices. It is more than
	// Config.StoreTimeout, so that no step that the node sent alive takes effect later.
	sweepAgainAfter = 5 * time.Second
)

// sweeper removes the parts of dead nodes in the shards that this node works on.
type sweeper struct {
	cfg   *Config
	clock *clock
	hub   sweepHub

	wake chan struct{}

	mu   sync.Mutex // guards the fields below
	dead []string
	// swept holds, by dead node, which shards were swept.
	swept map[string]*[Shards]sweptShard
}

// sweptShard is how often a shard was swept of a dead node since the last call of again, at most
// twice, and when last. reported is set once it was swept at all. The zero value is never.
type sweptShard struct {
	times    int
	last     time.Time
	reported bool
}

// sweepHub is what a sweeper needs of the hub.
type sweepHub interface {
	// works reports whether this node works on a shard.
	works(shard int) bool
	epoch(shard int) string
	appended(a Announcement)
	ended(shard int, epoch string, seq int64, at time.Time)
	epochDiffers(shard int)
	// swept is called after the parts of a dead node were removed in some shards.
	swept(users int, took time.Duration)
}

func newSweeper(cfg *Config, clk *clock, hub sweepHub) *sweeper {
	return &sweeper{cfg: cfg, clock: clk, hub: hub, wake: make(chan struct{}, 1), swept: map[string]*[Shards]sweptShard{}}
}

// setDead sets the nodes to sweep. A node that is no longer in the list is forgotten.
func (s *sweeper) setDead(dead []string) {
	s.mu.Lock()
	s.dead = dead
	keep := make(map[string]*[Shards]sweptShard, len(dead))
	for _, node := range dead {
		keep[node] = s.swept[node]
		if keep[node] == nil {
			keep[node] = &[Shards]sweptShard{}
		}
	}
	s.swept = keep
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// again makes a shard be swept of all dead nodes again, because the store may have lost what was
// done there.
func (s *sweeper) again(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.swept {
		d[shard] = sweptShard{reported: d[shard].reported}
	}
}

// run sweeps until ctx ends: after each change of the list, and when this node may have become the
// owner of a shard.
func (s *sweeper) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
		}
		s.sweepAll(ctx)
	}
}

// sweepAll sweeps every shard of this node that is to be swept of a dead node. A failure is retried
// at the next call.
func (s *sweeper) sweepAll(ctx context.Context) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	for _, node := range dead {
		began := time.Now()
		var users, shards int // the shards that were swept for the first time, or had users
		var mu sync.Mutex     // guards users, shards
		var wg sync.WaitGroup
		slots := make(chan struct{}, sweepConcurrency)
		for shard := range Shards {
			if ctx.Err() != nil {
				break
			}
			if s.done(node, shard) || !s.hub.works(shard) {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				n, err := s.sweep(ctx, shard, node)
				mu.Lock()
				defer mu.Unlock()
				users += n
				if err != nil {
					s.cfg.Logger.Debug("sweeping a shard failed", slog.Int("shard", shard), slog.Any("error", err))
					return
				}
				if first := s.markDone(node, shard); first || n > 0 {
					shards++
				}
			})
		}
		wg.Wait()
		if shards > 0 {
			s.hub.swept(users, time.Since(began))
			s.cfg.Logger.Info("removed the presence of a dead node", slog.String("presence_id", node),
				slog.Int("shards", shards), slog.Int("users", users), slog.Duration("duration", time.Since(began)))
		}
	}
}

// done reports whether a shard need not be swept now.
func (s *sweeper) done(node string, shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.swept[node]
	if d == nil {
		return true
	}
	return d[shard].times == 2 || d[shard].times == 1 && time.Since(d[shard].last) < sweepAgainAfter
}

// markDone records that a shard was swept, and reports whether it was the first time.
func (s *sweeper) markDone(node string, shard int) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.swept[node]
	if d == nil {
		return false
	}
	first = !d[shard].reported
	d[shard] = sweptShard{times: min(d[shard].times+1, 2), last: time.Now(), reported: true}
	return first
}

// sweep removes the parts of a dead node in a shard, and returns of how many users.
func (s *sweeper) sweep(ctx context.Context, shard int, node string) (users int, err error) {
	if err := s.call(ctx, func(ctx context.Context) error { return s.cfg.Store.Fence(ctx, shard, node) }); err != nil {
		return 0, err
	}
	for {
		var ids []string
		err := s.call(ctx, func(ctx context.Context) (err error) {
			var next uint64
			for ids, next, err = s.cfg.Store.Members(ctx, shard, node, 0); err == nil && len(ids) == 0 && next != 0; {
				ids, next, err = s.cfg.Store.Members(ctx, shard, node, next)
			}
			return err
		})
		if err != nil || len(ids) == 0 {
			return users, err
		}
		n, err := s.removeParts(ctx, shard, node, ids)
		users += n
		if err != nil {
			return users, err
		}
	}
}

// call calls fn with the timeout of a step.
func (s *sweeper) call(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	return fn(ctx)
}

// removeParts removes the parts of a dead node in the states of users.
func (s *sweeper) removeParts(ctx context.Context, shard int, node string, ids []string) (done int, err error) {
	epoch := s.hub.epoch(shard)
	var calls []SetCall
	for len(ids) > 0 {
		n := min(len(ids), maxSet)
		call := SetCall{
			Shard: shard, Node: node, Epoch: epoch, Sweep: true, NotAfter: s.clock.notAfter(shard, s.cfg.StoreTimeout),
		}
		for _, id := range ids[:n] {
			call.Users = append(call.Users, Part{UserID: id, Cause: NodeLost})
		}
		calls, ids = append(calls, call), ids[n:]
	}
	err = s.call(ctx, func(ctx context.Context) error {
		var failed error
		sent := time.Now()
		for i, r := range s.cfg.Store.Set(ctx, calls) {
			s.clock.saw(shard, r.Now, sent)
			switch r.Outcome {
			case Done:
				done += len(calls[i].Users)
				s.hub.appended(Announcement{Shard: shard, Epoch: epoch, Entries: entriesOf(&calls[i], &r)})
				s.hub.ended(shard, epoch, r.Seq, r.LastAt)
			case OtherEpoch:
				s.hub.epochDiffers(shard)
				failed = errNotSwept
			case Unknown:
				failed = r.Err
			case Late, Fenced:
				failed = errNotSwept
			}
		}
		return failed
	})
	return done, err
}
