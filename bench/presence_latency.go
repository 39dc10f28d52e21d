package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// changeRate is the number of changes per second in the figure on their latency.
	changeRate = 500
	// changingUsers is the number of users who change in turn.
	changingUsers = 1000
)

// latencies are the times of changes from the call to the frame, in milliseconds.
type latencies struct {
	mu sync.Mutex // guards the fields below
	// calls holds when the last change of each user began, and to which state; since is the time
	// from which changes count.
	calls []change
	since time.Time
	// remote and local hold what the watchers of other nodes, and of the same one, received.
	remote, local []float64
}

// change is a change of a user's state that a call makes.
type change struct {
	node   int
	online bool
	at     time.Time
}

// begin records that a call begins to change a user's state.
func (l *latencies) begin(user, node int, online bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[user] = change{node: node, online: online, at: time.Now()}
}

// saw records a state that a watcher received.
func (l *latencies) saw(w *watcher, user int, online bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.calls[user]
	if c.online != online || c.at.IsZero() || l.since.IsZero() || c.at.Before(l.since) {
		return
	}
	took := float64(at.Sub(c.at).Microseconds()) / 1000
	if w.node == c.node {
		l.local = append(l.local, took)
	} else {
		l.remote = append(l.remote, took)
	}
}

// measureLatency measures the time from the call that makes a user online or offline until the
// watchers of all nodes have the state.
func (f *PresenceFleet) measureLatency(ctx context.Context, env *Env) ([]Figure, error) {
	var p50, p99, localP50, localP99, floorP50, floorP99, counts []float64
	err := env.Each(ctx, func(ctx context.Context) error {
		l, err := f.change(ctx, env)
		if err != nil {
			return err
		}
		if len(l.remote) == 0 || len(l.local) == 0 {
			return errors.New("no change was seen")
		}
		slices.Sort(l.remote)
		slices.Sort(l.local)
		p50, p99 = append(p50, Quantile(l.remote, 0.5)), append(p99, Quantile(l.remote, 0.99))
		localP50, localP99 = append(localP50, Quantile(l.local, 0.5)), append(localP99, Quantile(l.local, 0.99))
		counts = append(counts, float64(len(l.remote)))
		return nil
	}, func(ctx context.Context) error {
		took, err := changeBare(ctx, env)
		if err != nil {
			return err
		}
		floorP50, floorP99 = append(floorP50, Quantile(took, 0.5)), append(floorP99, Quantile(took, 0.99))
		return nil
	})
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"payload": "", "rate": strconv.Itoa(changeRate) + " changes/s", "users": strconv.Itoa(changingUsers) + ", on the nodes in turn",
		"duration": env.Duration.String(), "watchers": "a stream on each node, all users",
	})
	const floor = "SET and PUBLISH in a bare Redis, to one subscriber"
	median := Figure{ID: "presence-latency/p50", Name: "from Connect or Disconnect to the watchers on the other nodes, p50", Unit: "ms", Setup: setup}.
		WithFloor(floor+", p50", p50, floorP50)
	tail := Figure{
		ID: "presence-latency/p99", Name: "from Connect or Disconnect to the watchers on the other nodes, p99", Unit: "ms", Setup: setup,
		Notes: []string{
			"to the watcher on the same node: p50 " + text(localP50, "ms") + ", p99 " + text(localP99, "ms"),
			"states received by the watchers of other nodes: " + text(counts, ""),
		},
	}.WithFloor(floor+", p99", p99, floorP99)
	return []Figure{median, tail.WithBar("50 ms at most", tail.Value.Median <= 50)}, nil
}

// change changes users at changeRate, and returns the latencies.
func (f *PresenceFleet) change(ctx context.Context, env *Env) (l *latencies, err error) {
	users := newUserSet(changingUsers, f.Token)
	l = &latencies{calls: make([]change, users.n)}
	tokens := make([]string, users.n)
	for i := range tokens {
		if tokens[i], err = f.Token(users.id(i)); err != nil {
			return nil, err
		}
	}
	watching, err := watchAll(ctx, env.Addrs, users, l.saw)
	if err != nil {
		return nil, err
	}
	defer watching.close()
	c := &changers{
		latencies: l, tokens: tokens, devices: make([]*device, users.n), busy: make([]atomic.Bool, users.n),
		failed: make(chan error, 1),
	}
	for i := range env.Addrs {
		for range users.n/len(env.Addrs)/streamsPerConn + 1 {
			c.links = append(c.links, newLink(env.Addrs[i]))
			c.nodes = append(c.nodes, i)
		}
	}
	defer c.close()
	tick := time.NewTicker(time.Second / changeRate)
	defer tick.Stop()
	began, warm := time.Now(), 2*users.n*int(time.Second)/changeRate // each user is online and offline once
	for i := 0; time.Since(began) < time.Duration(warm)+env.Duration; i++ {
		select {
		case <-tick.C:
		case err := <-c.failed:
			return nil, err
		case err := <-watching.failed:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.since.IsZero() && time.Since(began) >= time.Duration(warm) {
			l.mu.Lock()
			l.since = time.Now()
			l.mu.Unlock()
		}
		user := i % users.n
		c.calls.Go(func() { c.toggle(ctx, user) })
	}
	c.calls.Wait()
	pause(ctx, time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	return &latencies{remote: l.remote, local: l.local}, nil
}

// changers makes users online and offline.
type changers struct {
	*latencies

	tokens []string
	links  []*link
	nodes  []int // of the links
	// devices holds the stream of each user who is online. busy is set while a goroutine changes the
	// user.
	devices []*device
	busy    []atomic.Bool
	failed  chan error
	calls   sync.WaitGroup
	reading sync.WaitGroup
}

// toggle makes a user online who is offline, and the other way around.
func (c *changers) toggle(ctx context.Context, user int) {
	if c.busy[user].Swap(true) {
		return // the machine is too slow for the rate
	}
	defer c.busy[user].Store(false)
	n := user % len(c.links)
	l, node := c.links[n], c.nodes[n]
	if d := c.devices[user]; d != nil {
		c.begin(user, node, false)
		d.leaving.Store(true)
		if _, err := l.Disconnect(authorized(ctx, c.tokens[user]), &parleyv1.DisconnectRequest{StreamId: d.id}); err != nil {
			fail(c.failed, err)
		}
		c.devices[user] = nil
		return
	}
	streamCtx, cancel := context.WithCancel(ctx)
	c.begin(user, node, true)
	stream, err := l.Connect(authorized(streamCtx, c.tokens[user]), &parleyv1.ConnectRequest{
		Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: benchDevice,
	})
	if err == nil && !stream.Receive() {
		err = errors.Join(stream.Err(), stream.Close())
	}
	if err != nil {
		cancel()
		fail(c.failed, fmt.Errorf("connect: %w", err))
		return
	}
	d := &device{id: stream.Msg().GetInfo().GetStream().GetStreamId(), cancel: cancel}
	c.devices[user] = d
	c.reading.Go(func() {
		defer cancel()
		for stream.Receive() {
		}
		err := stream.Err()
		_ = stream.Close()
		if !d.leaving.Load() && streamCtx.Err() == nil {
			fail(c.failed, fmt.Errorf("a stream ended: %w", err))
		}
	})
}

func (c *changers) close() {
	c.calls.Wait()
	for _, d := range c.devices {
		if d != nil {
			d.leaving.Store(true)
			d.cancel()
		}
	}
	c.reading.Wait()
	for _, l := range c.links {
		l.close()
	}
}

// changeBare measures the time from SET and PUBLISH until a subscriber of a bare Redis has the
// change, at changeRate. The result is sorted, in milliseconds.
func changeBare(ctx context.Context, env *Env) ([]float64, error) {
	client, stop, err := env.ownRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	sub := client.Subscribe(ctx, "changes")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, err
	}
	var took []float64
	done := make(chan struct{})
	count := max(int(env.Duration.Seconds()*changeRate), 1)
	go func() {
		defer close(done)
		for m := range sub.Channel() {
			sent, err := strconv.ParseInt(m.Payload, 10, 64)
			if err == nil {
				took = append(took, float64(time.Now().UnixMicro()-sent)/1000)
			}
			if len(took) == count {
				return
			}
		}
	}()
	tick := time.NewTicker(time.Second / changeRate)
	defer tick.Stop()
	for i := range count {
		<-tick.C
		at := time.Now().UnixMicro()
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "user-"+strconv.Itoa(i%changingUsers), "8f", 30*time.Minute)
			p.Publish(ctx, "changes", at)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		return nil, errors.New("a subscriber of Redis missed a change")
	}
	slices.Sort(took)
	return took, nil
}
