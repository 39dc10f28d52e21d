package presence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// loginRun is clients of one user whose logins exclude each other. They log in, lose connections
// and responses, and reconnect with their logins, while nodes and the store fail.
type loginRun struct {
	*fleet

	seed    uint64
	clients sync.WaitGroup

	mu sync.Mutex // guards the fields below
	// calm is set once connections and responses are no longer lost.
	calm bool
	// fresh counts the logins without a token, kicks the logins that were ended.
	fresh, kicks int
	// newest is the client that logged in last, and ended those that KICKED has ended since their last
	// login.
	newest    int
	lastFresh time.Time
	ended     map[int]bool
	// live is the present connection of each client.
	live map[int]*device
	done bool
}

// loginClient is a client with a device of its own.
type loginClient struct {
	*loginRun

	id       int
	rng      *rand.Rand
	platform Platform
	login    *Login
}

func (c *loginClient) upTo(d time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(d)))
}

// run connects again and again, until the run is done. A client whose login was ended does not
// return, unless its user logs in anew.
func (c *loginClient) run() {
	for !c.over() {
		d := c.open()
		switch {
		case fault.Is(d.err, fault.Kicked):
			c.kicked(d.err)
		case d.err != nil:
		case c.loses(6): // the response: the client does not learn its login
			c.abandon(d)
		default:
			c.login = d.login
			if end := c.stay(d); end != nil && end.Reason == fault.Kicked {
				c.kicked(end)
			}
		}
		time.Sleep(pauseOfClients + c.upTo(time.Second))
	}
}

// pauseOfClients is the least time between two attempts of a client, and between two logins: no
// order is promised of those that are nearer.
const pauseOfClients = newerWithin + 10*time.Millisecond

func (c *loginClient) open() *device {
	c.mu.Lock()
	for c.login == nil && time.Since(c.lastFresh) < pauseOfClients {
		c.mu.Unlock()
		time.Sleep(c.upTo(time.Second))
		c.mu.Lock()
	}
	if c.login == nil {
		c.fresh++
		c.newest, c.lastFresh = c.id, time.Now()
		delete(c.ended, c.id)
	}
	c.mu.Unlock()
	x := c.nodes[c.rng.IntN(len(c.nodes))]
	for c.isGone(x) {
		x = c.nodes[c.rng.IntN(len(c.nodes))]
	}
	began := time.Now()
	d := x.connect("ada", c.platform, c.login)
	c.t.Logf("%s to %s: client %d on node %d with %+v: %+v, %v", began.Format("05.000000"), time.Now().Format("05.000000"), c.id, x.index,
		c.login, d.login, d.err)
	return d
}

// stay keeps a connection for some time, or until it ends, and returns why it ended.
func (c *loginClient) stay(d *device) (end *fault.Error) {
	c.set(func() { c.live[c.id] = d })
	defer c.set(func() { delete(c.live, c.id) })
	for {
		time.Sleep(50 * time.Millisecond)
		end = d.end()
		switch {
		case end != nil && end.Reason == fault.Kicked:
			d.lose()
			return end
		case end != nil, c.isGone(d.x), c.over():
			d.lose()
			return nil
		case c.loses(40):
			c.abandon(d)
			return nil
		}
	}
}

// kicked ends the client's login. Its user logs in anew at times, after a while.
func (c *loginClient) kicked(end error) {
	c.mu.Lock()
	c.kicks++
	c.ended[c.id] = true
	if c.kicks > c.fresh-1 {
		c.t.Errorf("%d kicks for %d logins: client %d ends with %v", c.kicks, c.fresh, c.id, end)
	}
	c.mu.Unlock()
	c.login = nil
	for !c.over() {
		time.Sleep(time.Second)
		if c.loses(10) {
			return // the user logs in again
		}
	}
}

// abandon loses a connection. Its node notices that at some time.
func (c *loginClient) abandon(d *device) {
	if c.rng.IntN(2) == 0 {
		d.lose()
		return
	}
	time.AfterFunc(c.upTo(5*time.Second), d.lose)
}

// loses reports once in n times, while the run is not calm, that something is lost.
func (c *loginClient) loses(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.calm && c.rng.IntN(n) == 0
}

func (r *loginRun) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

func (r *loginRun) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *loginRun) isGone(x *fleetNode) bool {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	return x.gone
}

// disturb causes one random fault.
func (r *loginRun) disturb(rng *rand.Rand, killed *int) {
	x := r.nodes[rng.IntN(len(r.nodes))]
	switch rng.IntN(8) {
	case 0:
		r.fleet.set(func() { r.cut[x.index] = !r.cut[x.index] })
	case 1:
		x.store.set(func(m *modelStore) { m.away = !m.away })
	case 2:
		r.store.set(func(m *modelStore) { m.lost = !m.lost })
	case 3:
		late := time.Duration(rng.IntN(3000)) * time.Millisecond
		n := 0
		r.store.set(func(m *modelStore) {
			m.late = func(method string) time.Duration {
				if n++; method != "login" || n%3 == 0 {
					return 0
				}
				return late
			}
		})
	case 4:
		if rng.IntN(3) == 0 {
			r.store.flush()
		}
	case 5:
		if *killed < len(r.nodes)-2 && !r.isGone(x) {
			*killed++
			r.kill(x)
		}
	default:
		r.heal()
	}
}

// heal ends all faults, except that killed nodes stay so.
func (r *loginRun) heal() {
	r.fleet.set(func() { clear(r.cut) })
	r.store.set(func(m *modelStore) { m.lost, m.late = false, nil })
	for _, x := range r.nodes {
		if !r.isGone(x) {
			x.store.set(func(m *modelStore) { m.away = false })
		}
	}
}

// TestReconnectsNeverLoop checks that clients that reconnect with their logins end each other less
// often than their users log in, and that the newest login remains.
func TestReconnectsNeverLoop(t *testing.T) {
	t.Parallel()
	runs := 4
	if testing.Short() {
		runs = 1
	}
	for policy, platforms := range map[Policy][]Platform{
		PolicyAll: {Web}, PolicyPlatform: {Web}, PolicyClass: {IOS, Android}, PolicySingle: {IOS, Web, Windows},
	} {
		for _, clients := range []int{2, 5} {
			for range runs {
				seed := rand.Uint64()
				t.Run(fmt.Sprintf("%s/%d/%d", policy, clients, seed), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { runLogins(t, policy, platforms, clients, seed) })
				})
			}
		}
	}
}

func runLogins(t *testing.T, policy Policy, platforms []Platform, clients int, seed uint64) {
	t.Helper()
	r := &loginRun{
		fleet: newFleet(t, 4, func(c *Config) { c.Policy = policy }), seed: seed, ended: map[int]bool{}, live: map[int]*device{},
	}
	for id := range clients {
		c := &loginClient{
			loginRun: r, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))),
			platform: platforms[id%len(platforms)],
		}
		r.clients.Go(func() {
			time.Sleep(c.upTo(5 * time.Second))
			c.run()
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1<<20))
	killed := 0
	for range 60 {
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		r.disturb(rng, &killed)
	}
	r.heal()
	r.set(func() { r.calm = true })
	time.Sleep(30 * time.Second)
	r.mu.Lock()
	if policy == PolicyAll {
		if r.kicks > 0 || len(r.live) != clients {
			t.Errorf("%d kicks, and %d of %d clients are connected", r.kicks, len(r.live), clients)
		}
	} else if len(r.live) != 1 || r.live[r.newest] == nil || len(r.ended) != clients-1 {
		t.Errorf("client %d logged in last of %d; connected are %v, ended %v", r.newest, clients, r.live, r.ended)
	}
	r.done = true
	r.mu.Unlock()
	r.clients.Wait()
	for _, x := range r.nodes {
		_ = x.hub.Stop(context.Background())
	}
	time.Sleep(10 * time.Second) // connections that were abandoned are lost by then
}
