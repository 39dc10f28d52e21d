// Package chaos breaks a running fleet in every way that its parts can break, under load, and judges what its users saw.
//
// A run has writers, readers and subscribers on every node (world), a schedule of faults (Schedule, Nemesis), and a
// history of all that was asked, answered, delivered and broken (Recorder). In the end everything is mended, every channel
// gets one more message, and the stores are read raw (Truth). Check then holds the history against the log: what was
// acknowledged is there, once, in order; nobody was shown what the log does not make of a message, or later than
// promised; what was recalled is nowhere.
//
// Nothing here uses the server's packages, so nothing of it is judged by its own code. That the checker sees what it
// should is tested by histories with one fault each, and by mutants: servers with one line made wrong (package mutants).
package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// Config says what Run does.
type Config struct {
	// Dir gets the history, the stores' content, the violations and the nodes' logs.
	Dir string
	// Seed gives the schedule and the clients' choices.
	Seed uint64
	// Plan is what is broken, in an order of the seed's.
	Plan Plan
	// Steps replace Plan's, unless nil.
	Steps []Step
	// Load is what goes on meanwhile.
	Load Load
	// KeepReplies leaves all replies where they are, instead of losing every hundredth.
	KeepReplies bool
	// Binary is the parleyd to run; empty builds it from this source.
	Binary string
	// NATSServers is 1 or 3; 3 if 0.
	NATSServers int
	// Database is MongoDB's: "parley" if empty.
	Database string
	Settings Settings
	Logger   *slog.Logger
}

// levelLimit is how soon every subscriber must be level with every log once all is mended.
const levelLimit = 15 * time.Second

// Result is what a run showed.
type Result struct {
	Violations []Violation
	History    *History
	Truth      *Truth
	// Lost counts the replies that were lost, by engine.
	Lost map[string]int64
}

// Run starts a fleet, breaks it, and judges it. The error is that of a run that could not be made: it says nothing of
// the server. The process must run in a network namespace of its own, see rig.RunInNamespace.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Database == "" {
		c.Database = "parley"
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, err
	}
	fleet, err := rig.Start(ctx, rig.Options{
		Nodes: c.Plan.Nodes, NATSServers: c.NATSServers, Namespaced: true, Binary: c.Binary, Database: c.Database,
		Logger: c.Logger,
		// A stream must be known to be dead soon, or coming level again would take longer than levelLimit.
		Env: []string{"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000"},
	})
	if err != nil {
		return nil, fmt.Errorf("start the fleet: %w", err)
	}
	r, err := newRun(&c, fleet)
	if err != nil {
		return nil, errors.Join(err, fleet.Close())
	}
	res, err := r.do(ctx)
	r.keepLogs()
	return res, errors.Join(err, fleet.Close())
}

// run is one Run under way.
type run struct {
	*world

	c       *Config
	fleet   *rig.Fleet
	nemesis *Nemesis

	followers []follower
	late      bool
	writing   sync.WaitGroup
	following sync.WaitGroup
	mu        sync.Mutex // guards errs
	errs      []error
}

func newRun(c *Config, fleet *rig.Fleet) (*run, error) {
	rec, err := NewRecorder(filepath.Join(c.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	c.Load.setDefaults()
	w := &world{rec: rec, addrs: fleet.Addresses(), load: c.Load}
	token := func(capabilities map[string][]string) func(string) string {
		return func(subject string) string {
			token, err := fleet.Token(subject, capabilities)
			if err != nil {
				return err.Error() // which no node takes for a token
			}
			return token
		}
	}
	w.token, w.guestToken = token(nil), token(guestActions)
	for i := range c.Load.Channels {
		w.channels = append(w.channels, fmt.Sprintf("cold-%02d", i))
	}
	r := &run{world: w, c: c, fleet: fleet}
	r.nemesis = NewNemesis(NemesisConfig{
		Fleet: fleet, Log: rec, Scale: c.Plan.Scale, Logger: c.Logger, Silence: r.sendAndRecall,
		Lossy: []rig.Engine{rig.EngineMongo, rig.EngineRedis},
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

// do runs the clients and the schedule, mends, reads the truth and judges.
func (r *run) do(ctx context.Context) (*Result, error) {
	writeCtx, stopWriting := context.WithCancel(ctx)
	followCtx, stopFollowing := context.WithCancel(ctx)
	defer r.following.Wait()
	defer r.writing.Wait()
	defer stopFollowing()
	defer stopWriting()
	if err := r.start(writeCtx, followCtx); err != nil {
		return nil, err
	}
	if err := r.startClubs(writeCtx, followCtx); err != nil {
		return nil, err
	}
	keepReplies := func() {}
	if !r.c.KeepReplies {
		keepReplies = r.nemesis.LoseReplies()
	}
	steps := r.c.Steps
	if steps == nil {
		steps = Schedule(r.c.Seed, r.c.Plan)
	}
	err := r.nemesis.Run(ctx, steps)
	keepReplies()
	if err != nil {
		return nil, err
	}
	sleep(ctx, 2*time.Second)
	stopWriting()
	r.writing.Wait()
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	stopFollowing()
	r.following.Wait()
	return r.judge(ctx)
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
				addrs = r.allAddrs(i)
			}
			w, err := r.newWriter(r.c.Seed, fmt.Sprintf("writer-%d-%d", i, k), addrs, fmt.Sprintf("author-%d", k))
			if err != nil {
				return err
			}
			r.writing.Go(func() { w.run(writeCtx) })
		}
		for k := range r.load.RawWriters {
			w := r.newRawWriter(r.c.Seed, fmt.Sprintf("raw-%d-%d", i, k), addr, fmt.Sprintf("author-%d", k))
			r.writing.Go(func() { w.run(writeCtx) })
		}
		for k := range r.load.Readers {
			reader := r.newReader(r.c.Seed, fmt.Sprintf("reader-%d-%d", i, k), addr)
			r.writing.Go(func() { reader.run(writeCtx) })
		}
		h, err := r.newHistorian(r.c.Seed, fmt.Sprintf("historian-%d", i), r.allAddrs(i))
		if err != nil {
			return err
		}
		r.writing.Go(func() { h.run(writeCtx) })
		r.following.Go(func() { r.nemesis.Watch(followCtx, i) })
	}
	r.writing.Go(func() { r.fail("late", r.visitors(writeCtx, r.c.Seed, "late")) })
	return nil
}

// startClubs starts those who come and go in channels that take members only.
func (r *run) startClubs(writeCtx, followCtx context.Context) error {
	b := r.newBouncer(r.c.Seed)
	var err error
	if r.members, err = b.open(followCtx); err != nil || !r.members {
		return err
	}
	r.writing.Go(func() { b.run(writeCtx) })
	for g := range guests {
		v := r.newVisitor(r.c.Seed, g, r.addrs[g%len(r.addrs)])
		r.writing.Go(func() { v.run(writeCtx) })
		c := r.newClubber(r.c.Seed, g, (g+1)%len(r.addrs))
		r.writing.Go(func() { c.run(writeCtx) })
	}
	return nil
}

// startFollowers starts the subscribers that begin at a node: one that stays there, one that moves, a raw one, and one
// that joins and leaves.
func (r *run) startFollowers(writeCtx, ctx context.Context, i int, addr string) error {
	for _, s := range []struct{ name, addr string }{
		{fmt.Sprintf("pinned-%d", i), addr}, {fmt.Sprintf("roaming-%d", i), r.allAddrs(i)},
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

	wanderer, err := r.subscribe(ctx, fmt.Sprintf("wanderer-%d", i), r.allAddrs(i))
	if err != nil {
		return err
	}
	r.writing.Go(func() { wanderer.wander(writeCtx) })
	return nil
}

// subscribe starts a subscriber without channels.
func (r *run) subscribe(ctx context.Context, name, addr string) (*subscriber, error) {
	s, err := r.newSubscriber(ctx, r.c.Seed, name, addr)
	if err != nil {
		return nil, err
	}
	r.followers = append(r.followers, s)
	r.following.Go(func() { r.fail(name, s.run(ctx)) })
	return s, nil
}

// sendAndRecall sends messages and takes them back while nobody can be told: their text must never be seen.
func (r *run) sendAndRecall(ctx context.Context, p Planned) {
	name := fmt.Sprintf("nemesis-%d", r.rec.ID())
	w, err := r.newWriter(r.c.Seed, name, r.allAddrs(p.Node), name)
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
		if op.Outcome == OK {
			w.take(ctx, sent{op.Channel, op.MsgID, op.From})
		}
	}
}

// fail records that a client ended for good, which none should.
func (r *run) fail(name string, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
}

// keepLogs copies what the nodes logged.
func (r *run) keepLogs() {
	for _, node := range r.fleet.Nodes() {
		if data, err := node.Log(); err == nil {
			_ = os.WriteFile(filepath.Join(r.c.Dir, fmt.Sprintf("node-%d.log", node.Index())), data, 0o600)
		}
	}
}
