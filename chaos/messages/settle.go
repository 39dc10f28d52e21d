package messages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// redelivery is the time within which channels' rows and read cursors must be up to date after the
// last fault was mended.
const redelivery = 13 * time.Second

// settle ends the run. It waits until all nodes are ready, makes one node miss messages while cut
// off from NATS, and sends one more message to every channel. After each of these it waits until
// all subscribers have caught up. Then it reads everything back.
func (r *run) settle(ctx context.Context) error {
	if err := r.nemesis.Healed(ctx); err != nil {
		return err
	}
	healed := time.Now()
	r.awaitCaughtUp(ctx, "everything was mended")
	if err := r.sendDuringCut(ctx); err != nil {
		return err
	}
	r.awaitCaughtUp(ctx, "a node without NATS missed the last messages of some channels")
	r.sendToAll(ctx)
	r.rec.Mark(markTouched)
	r.countCost()
	r.awaitCaughtUp(ctx, "every channel got its last message")
	r.rec.Mark(markEnded)
	var last sync.WaitGroup
	for _, t := range r.trimmers {
		last.Go(func() { t.finish(ctx) })
	}
	for _, k := range r.keepers {
		last.Go(func() { k.finish(ctx, r.Size == chaos.Long) })
	}
	for _, l := range r.logins {
		last.Go(func() { l.finish(ctx) })
	}
	last.Wait()
	if r.members {
		// A node may have died with unacknowledged entries of the change stream, which are
		// redelivered only after a while.
		chaos.Sleep(ctx, time.Until(healed.Add(redelivery)))
	}
	r.awaitClosed(ctx, healed)
	return r.readBack(ctx)
}

// awaitCaughtUp waits until every subscriber has every entry that any client knows of, but at most
// levelLimit. It then records a subscriber that does not. since says what preceded the wait.
//
// After the first late subscriber the limit is a second, because the run has failed anyway.
func (r *run) awaitCaughtUp(ctx context.Context, since string) {
	limit := levelLimit
	if r.late {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	heads := r.heads()
	for {
		late := r.behind(heads)
		if late == nil {
			r.Logger.InfoContext(ctx, "all are level", "took", time.Since(began).Round(time.Millisecond), "after", since)
			return
		}
		if !chaos.Sleep(ctx, 20*time.Millisecond) {
			late.Since, late.Limit = since, limit
			r.rec.Late(*late)
			r.late = true
			r.Logger.WarnContext(ctx, "subscriber is behind", "subscriber", late.Client, "channel", late.Channel, "seq", late.Seq, "head", late.Head)
			return
		}
	}
}

// heads returns the end of each log, as far as any client was told.
func (r *run) heads() map[string]int64 {
	heads := make(map[string]int64)
	for _, channel := range append(r.all(), r.load.woken()...) {
		heads[channel] = r.told.get(channel)
	}
	return heads
}

// sendDuringCut sends the last message for a while to some channels while one node is cut off from
// NATS. No later message reveals the gap to that node, so it must check on its own.
func (r *run) sendDuringCut(ctx context.Context) error {
	rng := chaos.Source(r.Seed, "whisper")
	deaf := rng.IntN(len(r.addrs))
	other := r.addrs[(deaf+1)%len(r.addrs)]
	w, err := r.newWriter(r.Seed, "whisperer", other, "whisperer")
	if err != nil {
		return err
	}
	defer w.client.Close()
	f := chaos.Fault{Name: "whisper", Target: r.addrs[deaf]}
	r.rec.BeginFault(&f)
	link := r.Fleet.Link(deaf, rig.EngineNATS)
	link.Cut()
	chaos.Sleep(ctx, 200*time.Millisecond)
	for i := range 6 {
		w.send(ctx, r.channels[(i*7)%len(r.channels)])
	}
	chaos.Sleep(ctx, 500*time.Millisecond)
	link.Restore()
	r.rec.EndFault(&f)
	return nil
}

// behind returns a subscriber that has not caught up, or nil if all have.
func (r *run) behind(heads map[string]int64) *Late {
	for _, f := range r.followers {
		if late := f.behind(heads); late != nil {
			late.Client = f.String()
			return late
		}
	}
	return nil
}

// sendToAll sends one message to every channel, and to some idle ones. Afterwards all caches must
// be up to date, too.
func (r *run) sendToAll(ctx context.Context) {
	w, err := r.newWriter(r.Seed, "toucher", r.addrsFrom(0), "toucher")
	if err != nil {
		return
	}
	defer w.client.Close()
	for _, channel := range append(r.all(), r.load.woken()...) {
		op := w.message(channel)
		op.Final, op.Limit = true, int64(10*time.Second)
		w.resend(ctx, &op)
	}
}

// readBack reads every channel completely on every node: as pages, ascending or descending, and as
// a stream from the beginning.
func (r *run) readBack(ctx context.Context) error {
	heads := r.heads()
	var g errgroup.Group
	for i, addr := range r.addrs {
		g.Go(func() error {
			reader := r.newReader(r.Seed, fmt.Sprintf("last-reader-%d", i), addr)
			defer reader.client.Close()
			for k, channel := range r.all() {
				op := reader.op(channel)
				op.Final = true
				if k%2 == i%2 {
					op.After = 0
				}
				if end, _ := reader.list(ctx, op, 500, 1<<20); !end {
					return fmt.Errorf("%s: %s could not be read to its end", reader.name, channel)
				}
			}
			return nil
		})
		g.Go(func() error { return r.replay(ctx, i, addr, heads) })
	}
	if r.members {
		r.listAll(ctx)
	}
	// A failure here is a violation, not a failure of the run: no fault is active any more.
	r.fail("reading back", g.Wait())
	return nil
}

// listAll records the lists of channels of every author, and of one guest, from every node.
func (r *run) listAll(ctx context.Context) {
	for i, addr := range r.addrs {
		for k := range max(r.load.Writers, r.load.RawWriters) {
			user := fmt.Sprintf("author-%d", k)
			r.recordChannels(ctx, user, addr, r.token(user))
		}
		user := guest(i % guests)
		r.recordChannels(ctx, user, addr, r.guestToken(user))
	}
}

// recordChannels records the list of a user's channels from one node.
func (r *run) recordChannels(ctx context.Context, user, addr, token string) {
	m := r.listChannels(ctx, user, addr, token)
	r.rec.Write(line{Mine: &m})
}

// replay follows every channel from its beginning until it has caught up with heads.
func (r *run) replay(ctx context.Context, i int, addr string, heads map[string]int64) error {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	s, err := r.newSubscriber(ctx, r.Seed, fmt.Sprintf("last-replay-%d", i), addr)
	if err != nil {
		return err
	}
	for _, channel := range r.all() {
		if err := s.follow(ctx, channel, 0, true); err != nil {
			return err
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	for level := false; !level && chaos.Sleep(ctx, 10*time.Millisecond); {
		level = s.positions.behind(heads) == nil
	}
	s.sub.Close()
	if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// readAll reads the stores and closes the history.
func (r *run) readAll(ctx context.Context) (*History, *Truth, error) {
	cache := r.Fleet.Redis.Client()
	defer cache.Close()
	t, err := readTruth(ctx, r.Fleet.Mongo.URI(), cache, r.Fleet.NATS.URL())
	if err != nil {
		return nil, nil, err
	}
	h, err := r.rec.Close()
	return h, t, err
}
