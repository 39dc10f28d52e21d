package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// killBound is the time in which all users of a killed node must be offline everywhere.
	killBound = 7 * time.Second
	// killLimit bounds the wait until all users are offline. A measurement that reaches it has failed.
	killLimit = time.Minute
	// killAfter is how long watchers are read after the last user was shown offline, to find states
	// that come twice.
	killAfter = 2 * time.Second
	// idleFor is how long the Redis of an idle fleet is measured.
	idleFor = 2 * time.Second
)

// PresenceFleet is what the figures on presence need of a fleet of at least two nodes besides its
// addresses: control of the last node, which holds the users.
type PresenceFleet struct {
	// Token returns a token for a user with all actions of presence.
	Token func(user string) (string, error)
	// Redis is the host:port of the nodes' Redis, and LeaseTTL their setting presence.lease_ttl.
	Redis    string
	LeaseTTL time.Duration
	// Kill kills the last node with SIGKILL, and Restart starts it again and waits until it is ready.
	Kill    func()
	Restart func(ctx context.Context) error
	// Stop halts the last node with SIGSTOP, and Continue resumes it.
	Stop, Continue func() error
}

// PresenceAreas returns the areas on presence that require a fleet. Options.Addrs must be the
// addresses of its nodes. Each area calls fleet once, when it is measured.
func PresenceAreas(fleet func(ctx context.Context) (*PresenceFleet, error)) []Area {
	on := func(measure func(f *PresenceFleet, ctx context.Context, env *Env) ([]Figure, error)) Measure {
		return func(ctx context.Context, env *Env) ([]Figure, error) {
			f, err := fleet(ctx)
			if err != nil {
				return nil, err
			}
			return measure(f, ctx, env)
		}
	}
	return []Area{
		{Name: "presence-kill", Help: "Kill -9 of a node: until its users are offline everywhere.", Measure: on((*PresenceFleet).measureKill)},
		{Name: "presence-stop", Help: "A node is halted and resumed: who has left stays offline.", Measure: on((*PresenceFleet).measureStop)},
		{Name: "presence-latency", Help: "From a device's call to a watcher's frame on each node.", Measure: on((*PresenceFleet).measureLatency)},
	}
}

// killRun is the result of one round.
type killRun struct {
	// took is when each watching stream showed each user offline, after the kill and sorted.
	took []time.Duration
	// reads is when GetPresence and ListOnlineUsers of every other node had no user any more.
	reads time.Duration
	// redis and nodes are the CPU time from the kill until then, per user in microseconds, without
	// that of as long an idle time.
	redis, nodes float64
	// memory is the resident memory of the killed node per stream in KiB, and connections the number
	// of its clients' connections.
	memory      float64
	connections int
}

// measureKill measures the time until all users of a killed node are offline.
func (f *PresenceFleet) measureKill(ctx context.Context, env *Env) ([]Figure, error) {
	n := env.Users
	var runs []killRun
	var bare []bareRemoval
	err := env.Each(ctx, func(ctx context.Context) error {
		run, err := f.kill(ctx, env, n)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		env.Progressf("offline everywhere after %s", time.Duration(run.last()*float64(time.Second)).Round(time.Millisecond))
		return f.Restart(ctx)
	}, func(ctx context.Context) error {
		got, err := removeBare(ctx, env, n)
		bare = append(bare, got)
		return err
	})
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"payload": "", "users": strconv.Itoa(n), "lease": f.LeaseTTL.String(),
		"connections": fmt.Sprintf("%d (HTTP/2, gRPC, %d streams each)", runs[0].connections, streamsPerConn),
		"watchers":    fmt.Sprintf("%d streams on each of the other %d nodes, %d users each", (n+watchedPerStream-1)/watchedPerStream, len(env.Addrs)-1, watchedPerStream),
	})
	last := Figure{
		ID: "presence-kill/time", Name: fmt.Sprintf("kill -9 of a node with %d users: until all are offline in every stream, read and list", n),
		Unit: "s", Setup: setup,
		Notes: []string{
			"in the watching streams: p50 " + text(each(runs, killRun.p50), "s") + ", p99 " + text(each(runs, killRun.p99), "s") +
				", last " + text(each(runs, killRun.lastStream), "s") + "; every stream received exactly one offline state of every user",
			"the killed node had " + text(each(runs, func(r killRun) float64 { return r.memory }), "KiB") + " of resident memory per stream",
		},
	}.WithFloor("the shortest silence that ends a lease, and the removal of as many users from a bare Redis",
		each(runs, killRun.last), each(bare, func(b bareRemoval) float64 { return (f.LeaseTTL*3/4 + b.took).Seconds() }))
	redisCost := Figure{
		ID: "presence-kill/redis", Name: "the same: CPU of Redis per user", Unit: "us", Setup: setup,
	}.WithFloor("DEL, SREM, ZREM and RPUSH for each user in pipelines of 100", each(runs, func(r killRun) float64 { return r.redis }),
		each(bare, func(b bareRemoval) float64 { return b.cpu }))
	nodesCost := Figure{
		ID: "presence-kill/nodes", Name: fmt.Sprintf("the same: CPU of the other %d nodes together per user", len(env.Addrs)-1), Unit: "us",
		Setup: setup, Value: Summarize(each(runs, func(r killRun) float64 { return r.nodes })),
	}
	return []Figure{last.WithBar(killBound.String()+" at most", last.Value.Max <= killBound.Seconds()), redisCost, nodesCost}, nil
}

func (r killRun) p50() float64        { return Quantile(r.took, 0.5).Seconds() }
func (r killRun) p99() float64        { return Quantile(r.took, 0.99).Seconds() }
func (r killRun) lastStream() float64 { return r.took[len(r.took)-1].Seconds() }
func (r killRun) last() float64       { return max(r.took[len(r.took)-1], r.reads).Seconds() }

// kill brings n users online on the last node, kills it, and waits until they are offline.
func (f *PresenceFleet) kill(ctx context.Context, env *Env, n int) (run killRun, err error) {
	users := newUserSet(n, f.Token)
	others := len(env.Addrs) - 1
	dying := &Target{Addrs: env.Addrs[others:], Ops: env.Ops[others:]}
	living := &Target{Addrs: env.Addrs[:others], Ops: env.Ops[:others]}
	empty, err := dying.Usage(ctx)
	if err != nil {
		return run, err
	}
	online, err := bringOnline(ctx, env.Addrs[others], users)
	if err != nil {
		return run, err
	}
	defer online.close()
	watching, err := watchAll(ctx, living.Addrs, users, nil)
	if err != nil {
		return run, err
	}
	defer watching.close()
	if err := watching.await(ctx, n*others); err != nil {
		return run, err
	}
	full, err := dying.Usage(ctx)
	if err != nil {
		return run, err
	}
	run.memory, run.connections = (full.RSS-empty.RSS)/1024/float64(n), online.connections()
	meter, err := f.idle(ctx, living)
	if err != nil {
		return run, err
	}
	select {
	case err := <-online.failed:
		return run, err
	default:
	}
	watching.reset()
	online.expectEnd()

	began := time.Now()
	f.Kill()
	if err := watching.await(ctx, 0); err != nil {
		return run, err
	}
	if err := watching.awaitReads(ctx, killLimit, 0); err != nil {
		return run, err
	}
	run.reads = time.Since(began)
	if run.redis, run.nodes, err = meter.since(ctx, n); err != nil {
		return run, err
	}
	pause(ctx, killAfter)
	run.took, err = watching.offlineTimes(began)
	return run, err
}

// meter measures the CPU time of Redis and of nodes.
type meter struct {
	client *redis.Client
	nodes  *Target
	// idleRedis and idleNodes are the CPU time per second of the idle fleet.
	idleRedis, idleNodes float64
	redisBefore          time.Duration
	nodesBefore          Usage
	began                time.Time
}

// idle measures the idle fleet, and begins a measurement.
func (f *PresenceFleet) idle(ctx context.Context, nodes *Target) (*meter, error) {
	m := &meter{client: redis.NewClient(&redis.Options{Addr: f.Redis}), nodes: nodes}
	if err := m.begin(ctx); err != nil {
		return nil, errors.Join(err, m.client.Close())
	}
	pause(ctx, idleFor)
	used, cpu, err := m.used(ctx)
	if err != nil {
		return nil, errors.Join(err, m.client.Close())
	}
	took := time.Since(m.began).Seconds()
	m.idleRedis, m.idleNodes = used.Seconds()/took, cpu.Seconds()/took
	if err := m.begin(ctx); err != nil {
		return nil, errors.Join(err, m.client.Close())
	}
	return m, nil
}

func (m *meter) begin(ctx context.Context) (err error) {
	m.began = time.Now()
	if m.redisBefore, err = redisCPU(ctx, m.client); err != nil {
		return err
	}
	m.nodesBefore, err = m.nodes.Usage(ctx)
	return err
}

// used returns the CPU time since begin.
func (m *meter) used(ctx context.Context) (redisUsed, nodes time.Duration, err error) {
	after, err := redisCPU(ctx, m.client)
	if err != nil {
		return 0, 0, err
	}
	usage, err := m.nodes.Usage(ctx)
	return after - m.redisBefore, usage.CPU - m.nodesBefore.CPU, err
}

// since returns the CPU time since the measurement began without that of as long an idle time, per
// user in microseconds. It closes the meter.
func (m *meter) since(ctx context.Context, users int) (redisUsed, nodes float64, err error) {
	r, c, err := m.used(ctx)
	took := time.Since(m.began).Seconds()
	redisUsed = (r.Seconds() - took*m.idleRedis) * 1e6 / float64(users)
	nodes = (c.Seconds() - took*m.idleNodes) * 1e6 / float64(users)
	return redisUsed, nodes, errors.Join(err, m.client.Close())
}

// bareRemoval is the time and the CPU time per user in microseconds to remove users from a bare
// Redis.
type bareRemoval struct {
	took time.Duration
	cpu  float64
}

// removeBare writes n users with bare commands into a redis-server of its own, and measures how
// they are removed.
func removeBare(ctx context.Context, env *Env, n int) (b bareRemoval, err error) {
	client, stop, err := env.ownRedis(ctx)
	if err != nil {
		return b, err
	}
	defer stop()
	const shards = 256
	pipelines := func(add func(p redis.Pipeliner, tag, user string)) error {
		for first := 0; first < n; first += 100 {
			if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := first; i < min(first+100, n); i++ {
					add(p, "p"+strconv.Itoa(i%shards)+":", "bench-user-"+strconv.Itoa(i))
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := pipelines(func(p redis.Pipeliner, tag, user string) {
		p.ZAdd(ctx, tag+user, redis.Z{Score: 1, Member: "node 8f"})
		p.SAdd(ctx, tag+"node", user)
		p.ZAdd(ctx, tag+"online", redis.Z{Member: user})
	}); err != nil {
		return b, err
	}
	before, err := redisCPU(ctx, client)
	if err != nil {
		return b, err
	}
	began := time.Now()
	if err := pipelines(func(p redis.Pipeliner, tag, user string) {
		p.Del(ctx, tag+user)
		p.SRem(ctx, tag+"node", user)
		p.ZRem(ctx, tag+"online", user)
		p.RPush(ctx, tag+"log", user+" gone")
	}); err != nil {
		return b, err
	}
	b.took = time.Since(began)
	after, err := redisCPU(ctx, client)
	b.cpu = float64((after - before).Microseconds()) / float64(n)
	return b, err
}
