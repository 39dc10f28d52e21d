// Package messages is the fault harness of messaging: it breaks a running fleet under load, and judges what writers, readers
// and subscribers saw.
//
// A run has writers, readers and subscribers on every node (world), and a history of all that was asked, answered,
// delivered and broken (Recorder). In the end everything is mended, every channel gets one more message, and the stores are
// read raw (Truth). Check then compares the history with the log: what was acknowledged is there, once, in order; nobody was
// shown what the log does not make of a message, or later than promised; what was recalled is nowhere.
//
// Nothing here uses the server's packages, so nothing of it is judged by its own code. That the checker sees what it
// should is tested by histories with one fault each, and by mutants.
package messages

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// levelLimit is how soon every subscriber must be level with every log once all is mended.
const levelLimit = 15 * time.Second

// Harness returns the harness.
func Harness() *chaos.Harness {
	return chaos.New(chaos.Spec[History, Truth]{
		Name: "messages", Short: shortPlan, Long: longPlan, Mutants: mutants, Fleet: fleet,
		Drive: func(ctx context.Context, c *chaos.Run) (*History, *Truth, error) {
			r, err := newRun(c)
			if err != nil {
				return nil, nil, err
			}
			return r.drive(ctx)
		},
		Read: ReadHistory, Check: Check, Calls: func(h *History) int { return len(h.Ops) }, Summarize: summarize,
	})
}

func fleet(c *chaos.Config) rig.Options {
	return rig.Options{
		NATSServers: c.NATSServers, Database: database,
		// A stream must be known to be dead soon, or coming level again would take longer than levelLimit.
		Env: []string{"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000"},
	}
}

// run is the workload of one run.
type run struct {
	*world
	*chaos.Run

	nemesis   *chaos.Nemesis
	followers []follower
	late      bool

	writing, following *chaos.Group
}

func newRun(c *chaos.Run) (*run, error) {
	rec, err := NewRecorder(c.HistoryPath())
	if err != nil {
		return nil, err
	}
	r := &run{Run: c, world: &world{rec: rec, addrs: c.Fleet.Addresses(), load: defaultLoad}}
	token := func(capabilities map[string][]string) func(string) string {
		return func(subject string) string {
			token, err := c.Fleet.Token(subject, capabilities)
			if err != nil {
				return err.Error() // which no node takes for a token
			}
			return token
		}
	}
	r.token, r.guestToken = token(nil), token(guestActions)
	for i := range r.load.Channels {
		r.channels = append(r.channels, fmt.Sprintf("cold-%02d", i))
	}
	r.nemesis = c.NewNemesis(chaos.NemesisConfig{
		Log: rec, Silence: r.sendAndRecall, Lossy: []rig.Engine{rig.EngineMongo, rig.EngineRedis},
	})
	return r, nil
}

// all are all channels.
func (r *run) all() []string {
	all := append([]string{hot}, r.channels...)
	if r.members {
		for i := range clubs {
			all = append(all, club(i))
		}
	}
	return all
}

// drive runs the clients and the schedule, waits until all is settled, and reads the truth.
func (r *run) drive(ctx context.Context) (*History, *Truth, error) {
	writeCtx, writing := r.Group(ctx)
	followCtx, following := r.Group(ctx)
	r.writing, r.following = writing, following
	if err := r.start(writeCtx, followCtx); err != nil {
		return nil, nil, err
	}
	if err := r.startClubs(writeCtx, followCtx); err != nil {
		return nil, nil, err
	}
	if err := r.nemesis.Run(ctx); err != nil {
		return nil, nil, err
	}
	chaos.Sleep(ctx, 2*time.Second)
	writing.Stop()
	if err := r.settle(ctx); err != nil {
		return nil, nil, err
	}
	following.Stop()
	return r.readAll(ctx)
}

// start starts all clients.
func (r *run) start(writeCtx, followCtx context.Context) error {
	for i, addr := range r.addrs {
		if err := r.startFollowers(writeCtx, followCtx, i, addr); err != nil {
			return err
		}
		for k := range r.load.Writers {
			// Odd ones move between the nodes, even ones stay. Those of one number share a subject across the nodes.
			addrs := addr
			if k%2 == 1 {
				addrs = r.addrsFrom(i)
			}
			w, err := r.newWriter(r.Seed, fmt.Sprintf("writer-%d-%d", i, k), addrs, fmt.Sprintf("author-%d", k))
			if err != nil {
				return err
			}
			r.writing.Go(func() { w.run(writeCtx) })
		}
		for k := range r.load.RawWriters {
			w := r.newRawWriter(r.Seed, fmt.Sprintf("raw-%d-%d", i, k), addr, fmt.Sprintf("author-%d", k))
			r.writing.Go(func() { w.run(writeCtx) })
		}
		for k := range r.load.Readers {
			reader := r.newReader(r.Seed, fmt.Sprintf("reader-%d-%d", i, k), addr)
			r.writing.Go(func() { reader.run(writeCtx) })
		}
		h, err := r.newHistorian(r.Seed, fmt.Sprintf("historian-%d", i), r.addrsFrom(i))
		if err != nil {
			return err
		}
		r.writing.Go(func() { h.run(writeCtx) })
	}
	r.nemesis.Watch(followCtx, r.following)
	r.writing.Go(func() { r.fail("late", r.visitors(writeCtx, r.Seed, "late")) })
	return nil
}

// startClubs starts those who come and go in channels that take members only.
func (r *run) startClubs(writeCtx, followCtx context.Context) error {
	b := r.newBouncer(r.Seed)
	var err error
	if r.members, err = b.open(followCtx); err != nil || !r.members {
		return err
	}
	r.writing.Go(func() { b.run(writeCtx) })
	for g := range guests {
		v := r.newVisitor(r.Seed, g, r.addrs[g%len(r.addrs)])
		r.writing.Go(func() { v.run(writeCtx) })
		c := r.newClubber(r.Seed, g, (g+1)%len(r.addrs))
		r.writing.Go(func() { c.run(writeCtx) })
	}
	return nil
}

// startFollowers starts the subscribers that begin at a node: one that stays there, one that moves, a raw one, and one
// that joins and leaves.
func (r *run) startFollowers(writeCtx, ctx context.Context, i int, addr string) error {
	for _, s := range []struct{ name, addr string }{
		{fmt.Sprintf("pinned-%d", i), addr}, {fmt.Sprintf("roaming-%d", i), r.addrsFrom(i)},
	} {
		sub, err := r.subscribe(ctx, s.name, s.addr)
		if err != nil {
			return err
		}
		for k, channel := range r.all() {
			after := int64(0)
			if k%4 == 3 {
				after = unset
			}
			if err := sub.follow(ctx, channel, after, false); err != nil {
				return err
			}
		}
	}
	raw := r.newRawSubscriber(fmt.Sprintf("rawsub-%d", i), addr, 0, r.all())
	r.followers = append(r.followers, raw)
	r.following.Go(func() { raw.run(ctx) })

	wanderer, err := r.subscribe(ctx, fmt.Sprintf("wanderer-%d", i), r.addrsFrom(i))
	if err != nil {
		return err
	}
	r.writing.Go(func() { wanderer.wander(writeCtx) })
	return nil
}

// subscribe starts a subscriber without channels.
func (r *run) subscribe(ctx context.Context, name, addr string) (*subscriber, error) {
	s, err := r.newSubscriber(ctx, r.Seed, name, addr)
	if err != nil {
		return nil, err
	}
	r.followers = append(r.followers, s)
	r.following.Go(func() { r.fail(name, s.run(ctx)) })
	return s, nil
}

// sendAndRecall sends messages and takes them back while nobody can be told: their text must never be seen.
func (r *run) sendAndRecall(ctx context.Context, p chaos.Planned) {
	name := fmt.Sprintf("nemesis-%d", r.rec.ID())
	w, err := r.newWriter(r.Seed, name, r.addrsFrom(p.Node), name)
	if err != nil {
		return
	}
	defer w.client.Close()
	for i := range 6 {
		channel := r.channels[i%len(r.channels)]
		if i%2 == 0 {
			channel = hot
		}
		op := w.message(channel)
		w.resend(ctx, &op)
		if op.Outcome == chaos.OK {
			w.take(ctx, sent{op.Channel, op.MsgID, op.From})
		}
	}
}

// fail records that a client ended for good, which none should.
func (r *run) fail(name string, err error) {
	if err != nil {
		r.Found(chaos.Violation{Name: chaos.Liveness, Detail: fmt.Sprintf("a client ended: %s: %v", name, err)})
	}
}

// addrsFrom returns all addresses as the SDK takes them, beginning with node i's.
func (r *run) addrsFrom(i int) string { return strings.Join(r.Addrs(i), ",") }
