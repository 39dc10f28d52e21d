// Package messages is the fault harness of messaging. It injects faults into a fleet under load and
// checks what writers, readers and subscribers observed.
//
// A run has writers, readers and subscribers on every node (world), and records every call, answer,
// delivery and fault in a history (Recorder). At the end it mends all faults, sends one more
// message to every channel, and reads the stores directly (Truth). Check then compares the history
// with the log: every acknowledged write is stored once and in order; no client was shown a message
// that does not match the log, or later than promised; no recalled text exists anywhere. Channels
// whose messages expire, gated channels, and deleted sessions have clients and checks of their own.
//
// Some clients sign in and out, and go on with the tokens that they have signed out (loginClient).
// No node may accept such a token a second after the sign-out was acknowledged, and none may refuse
// a token that nobody has signed out.
//
// Some of the channels are sessions. Generators open messages in them and stream their texts
// through the faults (generator), and every text that a subscriber was shown is compared with what
// was appended.
//
// The package does not use the server's packages, so the server's code never checks itself. Tests
// with histories of one fault each, and mutants, show that the checker finds what it must.
package messages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// levelLimit is the time within which every subscriber must catch up with every log after the last
// fault was mended.
const levelLimit = 15 * time.Second

// replayLimit is how long a replay of all channels may take at the end, beside those of the other
// nodes. After a long run the channel of giant messages alone has about a thousand entries.
const replayLimit = 3 * time.Minute

// Harness returns the fault harness of messaging.
func Harness() *chaos.Harness {
	return chaos.New(chaos.Spec[History, Truth]{
		Name: "messages", Short: shortPlan, Long: longPlan, Mutants: mutants, Seams: chaos.MovedClock, Fleet: fleet,
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
		// Two nodes' clocks are wrong from the start. Messages must have the right times all the same.
		Clocks: []time.Duration{chaos.ClockOffset, -chaos.ClockOffset},
		// A subscriber must detect a dead stream soon; otherwise it would take longer than
		// levelLimit to catch up.
		Env: []string{
			"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000",
			"PARLEY_SESSIONS_OPEN_TIMEOUT=" + openTimeout.String(),
		},
	}
}

// run is one run of the workload.
type run struct {
	*world
	*chaos.Run

	nemesis   *chaos.Nemesis
	followers []follower
	trimmers  []*trimmer
	keepers   []*gatekeeper
	logins    []*loginClient
	late      bool

	writing, following *chaos.Group
}

func newRun(c *chaos.Run) (*run, error) {
	rec, err := NewRecorder(c.HistoryPath())
	if err != nil {
		return nil, err
	}
	r := &run{Run: c, world: &world{rec: rec, addrs: c.Fleet.Addresses(), load: defaultLoad.sized(c.Size)}}
	token := func(capabilities map[string][]string) func(string) string {
		return func(subject string) string {
			token, err := c.Fleet.Token(subject, capabilities)
			if err != nil {
				return err.Error() // an invalid token, which every node refuses
			}
			return token
		}
	}
	r.token, r.guestToken, r.aideToken = token(nil), token(guestActions), token(aideActions)
	for i := range r.load.Channels {
		r.channels = append(r.channels, fmt.Sprintf("cold-%02d", i))
	}
	for i := range r.load.Sessions {
		r.sessions = append(r.sessions, fmt.Sprintf("%schat-%d", sessionPrefix, i))
	}
	r.nemesis = c.NewNemesis(chaos.NemesisConfig{
		Log: rec, Silence: r.sendAndRecall, Lossy: []rig.Engine{rig.EngineMongo, rig.EngineRedis},
	})
	return r, nil
}

// all returns the names of all channels, except the idle ones: the hot one, the hostile ones, the
// cold ones, the sessions and the clubs.
func (r *run) all() []string {
	all := append([]string{hot, edited, giant}, r.channels...)
	all = append(all, r.sessions...)
	if r.members {
		for i := range clubs {
			all = append(all, club(i))
		}
	}
	return all
}

// drive runs the clients and the schedule, waits until the workload has settled, and reads the
// truth.
func (r *run) drive(ctx context.Context) (*History, *Truth, error) {
	writeCtx, writing := r.Group(ctx)
	followCtx, following := r.Group(ctx)
	r.writing, r.following = writing, following
	if err := r.openSessions(ctx); err != nil {
		return nil, nil, err
	}
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
	r.measure(ctx)
	return r.readAll(ctx)
}

// start starts all clients except those of the clubs.
func (r *run) start(writeCtx, followCtx context.Context) error {
	for i, addr := range r.addrs {
		if err := r.startFollowers(writeCtx, followCtx, i, addr); err != nil {
			return err
		}
		for k := range r.load.Writers {
			// Odd writers move between the nodes, even ones stay. The writers with the same k, one
			// on each node, share a subject.
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
		for k := range r.load.Generators {
			g := r.newGenerator(r.Seed, fmt.Sprintf("generator-%d-%d", i, k), i)
			r.writing.Go(func() { g.run(writeCtx) })
		}
	}
	d := r.newDeleter()
	r.writing.Go(func() { d.run(writeCtx) })
	r.startHostile(writeCtx, followCtx)
	for i := range trimmedChannels {
		t := r.newTrimmer(i)
		if err := t.create(writeCtx); err != nil {
			return err
		}
		r.trimmers = append(r.trimmers, t)
		r.writing.Go(func() { t.run(writeCtx) })
	}
	if err := r.startGates(writeCtx, followCtx); err != nil {
		return err
	}
	r.startLogins(writeCtx)
	r.nemesis.Watch(followCtx, r.following)
	r.writing.Go(func() { r.fail("short", r.shortSubscribers(writeCtx, r.Seed, "short")) })
	return nil
}

// startClubs starts the member manager and the guests of the members-only channels.
func (r *run) startClubs(writeCtx, followCtx context.Context) error {
	b := r.newMemberManager(r.Seed)
	var err error
	if r.members, err = b.open(followCtx); err != nil || !r.members {
		return err
	}
	r.writing.Go(func() { b.run(writeCtx) })
	for g := range guests {
		v := r.newGuestCaller(r.Seed, g, r.addrs[g%len(r.addrs)])
		r.writing.Go(func() { v.run(writeCtx) })
		c := r.newGuestStream(r.Seed, g, (g+1)%len(r.addrs))
		r.writing.Go(func() { c.run(writeCtx) })
	}
	return nil
}

// hopEvery is how long a subscriber stays on a stream that leaves streams without a fault. It
// resumes many times during a fault, so that replays meet live events. On a busy machine that is
// too short for a replay, so once the load has ended it stays, and has to catch up as the others
// do.
const hopEvery = 1500 * time.Millisecond

// startFollowers starts the subscribers that begin at a node: one that stays there, one that moves,
// a raw one that stays on its stream, a raw one that does not, and one that joins and leaves
// channels.
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
	for _, f := range []struct {
		name string
		hops time.Duration
	}{{"rawsub", 0}, {"hopping", hopEvery}} {
		follows := r.all()
		if f.hops > 0 {
			// The largest messages take longer to replay than it stays.
			follows = slices.DeleteFunc(follows, func(channel string) bool { return channel == giant })
		}
		raw := r.newRawSubscriber(fmt.Sprintf("%s-%d", f.name, i), addr, 0, follows)
		raw.hops, raw.hopping = f.hops, func() bool { return writeCtx.Err() == nil }
		r.followers = append(r.followers, raw)
		r.following.Go(func() { raw.run(ctx) })
	}

	wanderer, err := r.subscribe(ctx, fmt.Sprintf("wanderer-%d", i), r.addrsFrom(i))
	if err != nil {
		return err
	}
	r.writing.Go(func() { wanderer.joinAndLeave(writeCtx) })
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

// sendAndRecall sends messages and recalls them while NATS is down, so that nobody can be notified.
// Their text must never be shown.
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
			w.recallMessage(ctx, ackedMessage{op.Channel, op.MsgID, op.From})
		}
	}
}

// fail records a violation if a client ended with an error, which none should. It ignores nil.
func (r *run) fail(name string, err error) {
	if err != nil {
		r.Found(chaos.Violation{Name: chaos.Liveness, Detail: fmt.Sprintf("a client ended: %s: %v", name, err)})
	}
}

// addrsFrom returns all addresses in the SDK's format, starting with node i's.
func (r *run) addrsFrom(i int) string { return strings.Join(r.Addrs(i), ",") }
