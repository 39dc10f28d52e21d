// Package presence is the fault harness of presence. It injects faults into a fleet under load and
// checks what devices, watchers and readers observed.
//
// A run has users with one to three devices that connect to any node, flap, leave, change their
// background flag and log in anew (device). It has watchers on invisible streams that add and
// remove users (watcher), and a reader of GetPresence and ListOnlineUsers on each node (poller).
// All use the generated clients, so a Recorder keeps every frame as the server sent it. At the end
// the run mends all faults, lets the devices stand still, compares all views until they agree,
// reads Redis directly (Truth), and lets all devices leave.
//
// Check builds timelines of each user's platforms: when the user was surely online, and when the
// user may have been. What a client was told must have been possible a short time before. See model
// for the timelines and bounds.go for the times.
//
// The package does not use the server's packages, so the server's code never checks itself. Tests
// with histories of one fault each, and mutants, show that the checker finds what it must.
package presence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// The faults of the harness.
const (
	// CutBoth breaks a node's connections to Redis and to NATS, and refuses new ones. So the node is
	// silent.
	CutBoth chaos.FaultName = "cut-both"
	// RedisStop is SIGSTOP and SIGCONT of Redis: requests that were given up take effect afterwards.
	RedisStop chaos.FaultName = "redis-stop"
	// RedisSlow is a Redis that answers up to slowFor late.
	RedisSlow chaos.FaultName = "redis-slow"
	// RedisClock moves the wall clock of Redis by clockJump, and back at the end.
	RedisClock chaos.FaultName = "redis-clock"
)

const (
	// slowFor is how long RedisSlow halts Redis at a time, and slowRun how long Redis runs in between.
	slowFor, slowRun = 500 * time.Millisecond, 50 * time.Millisecond
	// clockJump is more than the lease of a node.
	clockJump = 10 * time.Second
)

// shortPlan returns the plan of a run of about a minute. A stopped node is stopped for longer than
// its lease. A node is not cut off from Redis alone: that shows only after a time longer than its
// lease, too.
func shortPlan() chaos.Plan {
	return chaos.Plan{Nodes: 3, Scale: 0.5, Counts: map[chaos.FaultName]int{
		chaos.NodeKill: 1, chaos.NodeStop: 1, chaos.CutNATS: 1, CutBoth: 1, chaos.RedisFlush: 1,
	}}
}

// longPlan returns the plan of `make chaos`: every fault of nodes, Redis and NATS, the worst ones
// many times.
func longPlan() chaos.Plan {
	return chaos.Plan{Nodes: 3, Scale: 1, Counts: map[chaos.FaultName]int{
		chaos.NodeKill: 12, chaos.NodeStop: 8, chaos.NodeIsolate: 2, chaos.Roll: 4, CutBoth: 5, RedisStop: 4, RedisSlow: 3, RedisClock: 4,
		chaos.RedisKill: 5, chaos.RedisFlush: 8, chaos.RedisPast: 3, chaos.CutRedis: 6, chaos.StallRedis: 5,
		chaos.NATSAway: 3, chaos.NATSKill: 2, chaos.CutNATS: 4, chaos.StallNATS: 3,
	}}
}

// Harness returns the harness of presence.
func Harness() *chaos.Harness {
	return chaos.New(chaos.Spec[History, Truth]{
		Name: "presence", Short: shortPlan, Long: longPlan, Mutants: mutants, Fleet: fleet,
		Drive: func(ctx context.Context, c *chaos.Run) (*History, *Truth, error) {
			r, err := newRun(c)
			if err != nil {
				return nil, nil, err
			}
			return r.drive(ctx)
		},
		Read: ReadHistory, Check: Check, Calls: func(h *History) int { return len(h.Conns) }, Summarize: summarize,
	})
}

// policyOf returns the login policy of a run. Half of the seeds have each.
func policyOf(seed uint64) string {
	if seed%2 == 0 {
		return policyPlatform
	}
	return policyClass
}

// The login policies of runs.
const (
	policyPlatform = "platform"
	policyClass    = "class"
)

func fleet(c *chaos.Config) rig.Options {
	// With the cache of all users, half of the seeds of each policy test its loading.
	cache := "lru"
	if c.Seed/2%2 == 0 {
		cache = "full"
	}
	return rig.Options{MongoMembers: 1, NATSServers: c.NATSServers, MovableClock: true, Env: []string{
		"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000",
		"PARLEY_PRESENCE_LEASE_TTL=" + leaseTTL.String(), "PARLEY_PRESENCE_OFFLINE_AFTER=" + offlineAfter.String(),
		"PARLEY_PRESENCE_TTL=" + partTTL.String(), "PARLEY_PRESENCE_LOGIN_POLICY=" + policyOf(c.Seed), "PARLEY_PRESENCE_CACHE=" + cache,
	}}
}

// run is one run of the workload.
type run struct {
	*chaos.Run
	*world

	nemesis  *chaos.Nemesis
	devices  []*device
	watchers []*watcher
	readers  []*poller
}

func newRun(c *chaos.Run) (*run, error) {
	rec, err := NewRecorder(c.HistoryPath())
	if err != nil {
		return nil, err
	}
	r := &run{Run: c, world: &world{rec: rec, addrs: c.Fleet.Addresses(), seed: c.Seed, calm: make(chan struct{})}}
	rec.Write(line{Fleet: &fleetLine{Policy: policyOf(c.Seed), Addrs: r.addrs}})
	r.token = func(user string) string {
		token, err := c.Fleet.Token(user, nil)
		if err != nil {
			return err.Error() // an invalid token, which every node refuses
		}
		return token
	}
	r.users = newUsers(userCount(c.Size))
	r.devices, r.watchers = r.newDevices(), r.newWatchers()
	for i := range r.addrs {
		r.readers = append(r.readers, r.newPoller(i))
	}
	r.nemesis = c.NewNemesis(chaos.NemesisConfig{
		Log: rec, Lossy: []rig.Engine{rig.EngineRedis}, Own: map[chaos.FaultName]chaos.Break{
			CutBoth: r.cutBoth, RedisStop: r.stopRedis, RedisSlow: r.slowRedis, RedisClock: r.moveClock,
		},
	})
	return r, nil
}

// cutBoth is the fault CutBoth.
func (r *run) cutBoth(_ context.Context, p chaos.Planned) (target string, mend chaos.Mend, err error) {
	links := []*rig.Proxy{r.Fleet.Link(p.Node, rig.EngineRedis), r.Fleet.Link(p.Node, rig.EngineNATS)}
	for _, l := range links {
		l.Cut()
	}
	return r.addrs[p.Node], func(context.Context) error {
		for _, l := range links {
			l.Restore()
		}
		return nil
	}, nil
}

// stopRedis is the fault RedisStop.
func (r *run) stopRedis(context.Context, chaos.Planned) (target string, mend chaos.Mend, err error) {
	return "redis", func(context.Context) error { return r.Fleet.Redis.Cont() }, r.Fleet.Redis.Stop()
}

// slowRedis is the fault RedisSlow.
func (r *run) slowRedis(ctx context.Context, _ chaos.Planned) (target string, mend chaos.Mend, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			err := r.Fleet.Redis.Stop()
			chaos.Sleep(ctx, slowFor)
			if err = errors.Join(err, r.Fleet.Redis.Cont()); err != nil || !chaos.Sleep(ctx, slowRun) {
				ended <- err
				return
			}
		}
	}()
	return "redis", func(context.Context) error { cancel(); return <-ended }, nil
}

// moveClock is the fault RedisClock. The clock goes forward for every other target, else back.
func (r *run) moveClock(_ context.Context, p chaos.Planned) (target string, mend chaos.Mend, err error) {
	by := clockJump
	if p.Node%2 == 1 {
		by = -by
	}
	return by.String(), func(context.Context) error { return r.Fleet.Redis.SetClock(0) }, r.Fleet.Redis.SetClock(by)
}

// warmUp is the time without faults at the beginning of a run.
const warmUp = 4 * time.Second

// drive runs the clients and the schedule, waits until the workload has settled, lets the devices
// leave, and reads the truth.
func (r *run) drive(ctx context.Context) (*History, *Truth, error) {
	watchCtx, watching := r.Group(ctx)
	connectCtx, connecting := r.Group(ctx)
	r.nemesis.Watch(watchCtx, watching)
	redis := r.Fleet.Redis.Client()
	watching.Go(func() { defer redis.Close(); r.pings(watchCtx, redis) })
	watching.Go(func() { r.stalls(watchCtx) })
	for _, w := range r.watchers {
		watching.Go(func() { w.run(watchCtx) })
	}
	for _, p := range r.readers {
		watching.Go(func() { p.run(watchCtx) })
	}
	for _, d := range r.devices {
		connecting.Go(func() { d.run(connectCtx) })
	}
	chaos.Sleep(ctx, warmUp)
	if err := r.nemesis.Run(ctx); err != nil {
		return nil, nil, err
	}
	chaos.Sleep(ctx, time.Second)
	if err := r.nemesis.Healed(ctx); err != nil {
		return nil, nil, err
	}
	close(r.calm)
	t := new(Truth)
	if err := r.settle(ctx, t); err != nil {
		return nil, nil, err
	}
	connecting.Stop()
	if err := r.empty(ctx, t); err != nil {
		return nil, nil, err
	}
	watching.Stop()
	if err := r.readAllGauges(ctx, t); err != nil {
		return nil, nil, err
	}
	h, err := r.rec.Close()
	return h, t, err
}

// settle waits until all views of the devices' states agree, for up to settleLimit. It then reads
// everything once more for the history and the truth.
func (r *run) settle(ctx context.Context, t *Truth) error {
	redis := r.Fleet.Redis.Client()
	defer redis.Close()
	limit, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	began := time.Now()
	for {
		left := r.differs(ctx)
		if left == "" {
			break
		}
		if !chaos.Sleep(limit, 300*time.Millisecond) {
			r.rec.Write(line{Unsettled: left})
			break
		}
	}
	r.Logger.InfoContext(ctx, "the workload has settled", "took", time.Since(began).Round(time.Millisecond))
	r.rec.Mark(markSettled)
	for _, p := range r.readers {
		_, _ = p.get(ctx, true) // Check reports failures
		_, _ = p.list(ctx, true)
	}
	s, err := readSnapshot(ctx, redis)
	if err != nil {
		return fmt.Errorf("truth: %w", err)
	}
	t.Settled = *s
	r.rec.Mark(markLeaving)
	return nil
}

// differs describes a difference between the devices' states and what watchers, nodes or Redis
// have. It is "" if there is none, and if no device changed meanwhile.
func (r *run) differs(ctx context.Context) string {
	want := look(r.devices)
	if want.busy != "" {
		return "device " + want.busy + " is neither online nor offline"
	}
	var found []string
	for _, w := range r.watchers {
		if text := w.held.differs(r.users, want.states); text != "" {
			found = append(found, w.name+" "+text)
		}
	}
	for _, p := range r.readers {
		if seen, err := p.get(ctx, false); err != nil || !same(seen, want.states) {
			found = append(found, fmt.Sprintf("GetPresence of %s differs: %v", p.client.Addr, err))
		}
		if seen, err := p.list(ctx, false); err != nil || !same(seen, want.states) {
			found = append(found, fmt.Sprintf("ListOnlineUsers of %s differs: %v", p.client.Addr, err))
		}
	}
	redis := r.Fleet.Redis.Client()
	defer redis.Close()
	if s, err := readSnapshot(ctx, redis); err != nil || !equal(s.states(), want.states) {
		found = append(found, fmt.Sprintf("Redis differs: %v", err))
	}
	if len(found) == 0 && !equal(look(r.devices).states, want.states) {
		found = append(found, "a device changed")
	}
	return strings.Join(found, "; ")
}

// same reports whether the users that are online in seen are those of states, with their states.
func same(seen []Seen, states map[string]State) bool {
	online := make(map[string]State)
	for _, s := range seen {
		if s.State != "" {
			online[s.User] = s.State
		}
	}
	return equal(online, states)
}

func equal(a, b map[string]State) bool {
	if len(a) != len(b) {
		return false
	}
	for user, state := range a {
		if b[user] != state {
			return false
		}
	}
	return true
}

// empty waits until Redis has nothing of any user any more, for up to emptyLimit, and reads the
// rest of the truth.
func (r *run) empty(ctx context.Context, t *Truth) error {
	redis := r.Fleet.Redis.Client()
	defer redis.Close()
	limit, cancel := context.WithTimeout(ctx, emptyLimit)
	defer cancel()
	for {
		s, err := readSnapshot(ctx, redis)
		if err != nil {
			return fmt.Errorf("truth: %w", err)
		}
		t.Left = *s
		if s.empty() || !chaos.Sleep(limit, 300*time.Millisecond) {
			return nil
		}
	}
}
