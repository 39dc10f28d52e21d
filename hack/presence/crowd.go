package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// tokenTTL is how long tokens of users are valid.
	tokenTTL = 2 * time.Hour
	// opening is the number of requests to one node that may wait for a response at a time. Each
	// request without a free connection dials one, so thousands of users who move at once would open
	// thousands of connections.
	opening = 64
	// maxReasons is the maximum number of reasons that are counted one by one.
	maxReasons = 20
	// late is how late a state may be shown: 2 s are promised when a reply of Redis is lost, and the
	// machine may be loaded.
	late = 5 * time.Second
)

// platform is the platform of all users, and shown is how Redis and the views name it.
const (
	platform = parley.PlatformLinux
	shown    = "7f"
)

// gate limits the requests to each node that wait for a response.
type gate struct {
	next  http.RoundTripper
	slots map[string]chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	slots := g.slots[r.URL.Host]
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return g.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// newHTTP returns a client whose HTTP/2 connections carry many streams, with the settings of the
// SDK's own client.
func newHTTP(addrs []string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	g := &gate{slots: make(map[string]chan struct{}), next: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		Protocols:   protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 5 * time.Second, PingTimeout: 3 * time.Second, WriteByteTimeout: 10 * time.Second,
		},
	}}
	for _, addr := range addrs {
		g.slots[addr] = make(chan struct{}, opening)
	}
	return &http.Client{Transport: g}
}

// crowd is all users. Each user who is online is a Presence of the Go SDK, on any node. The streams
// share the connections of one HTTP client.
type crowd struct {
	fleet  *rig.Fleet
	http   *http.Client
	addrs  string
	nodes  map[string]int // of addresses, as the SDK reports them
	users  map[string]*user
	ids    []string // all users
	faults *faults
	// ledger knows the logins, and thieves try their tokens.
	ledger  *ledger
	thieves *thieves
	// seed chooses who holds more streams, and more. breaks is the mode of Break.
	seed   uint64
	breaks string

	mu sync.Mutex // guards the fields below
	// changes counts the transitions that were made.
	changes int
	// ends counts the streams that ended although the user stays, by reason.
	ends map[string]int
	// times are the times until a watcher on another node had a change, by the phase of the change.
	// signOuts are those of sign-outs.
	times, signOuts map[phase][]time.Duration
	errs            []error
}

func newCrowd(fleet *rig.Fleet, r *replay, f *faults, t *thieves) *crowd {
	c := &crowd{
		fleet: fleet, http: newHTTP(fleet.Addresses()), addrs: strings.Join(fleet.Addresses(), ","),
		nodes: make(map[string]int), users: make(map[string]*user), faults: f, ledger: t.ledger, thieves: t,
		ends: make(map[string]int), times: make(map[phase][]time.Duration), signOuts: make(map[phase][]time.Duration),
	}
	for i, addr := range fleet.Addresses() {
		c.nodes["http://"+addr] = i
	}
	for _, d := range r.days {
		for _, id := range d.users {
			c.users[id] = &user{crowd: c, id: id, node: -1}
			c.ids = append(c.ids, id)
		}
	}
	return c
}

// do makes users act, each in the order of the calls. It does not wait. Presences do not end with
// ctx, but with disconnects or close.
func (c *crowd) do(ctx context.Context, e event) {
	c.users[e.user].do(context.WithoutCancel(ctx), e.act)
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// ended counts a stream that ended, or one that did not become live.
func (c *crowd) ended(live bool, err error) {
	reason := "the server asked to reconnect"
	if err != nil {
		reason = err.Error()
	}
	if !live {
		reason = "not opened: " + reason
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.ends[reason]; !ok && len(c.ends) >= maxReasons {
		reason = "other reasons"
	}
	c.ends[reason]++
}

// reopened returns the number of streams that ended although the user stays.
func (c *crowd) reopened() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.ends {
		n += one
	}
	return n
}

// err returns the errors of all users so far.
func (c *crowd) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs[:min(len(c.errs), 5)]...)
}

// differs reports how many users have not yet done what they should, with examples, or "". out are
// those who should have signed out, even if they came back.
func (c *crowd) differs(online, out map[string]bool) string {
	var d difference
	for id, u := range c.users {
		if text := u.differs(online[id], out[id]); text != "" {
			d.addf("%s %s", id, text)
		}
	}
	return d.String()
}

// settle keeps the times of all changes so far.
func (c *crowd) settle() {
	for _, u := range c.users {
		u.mu.Lock()
		u.settle()
		u.mu.Unlock()
	}
}

// close ends all presences that are left, after a failure, and closes the connections.
func (c *crowd) close() {
	var done sync.WaitGroup
	for _, u := range c.users {
		u.mu.Lock()
		l := u.alive
		u.alive, u.acts = nil, nil
		u.mu.Unlock()
		if l != nil && l.presence != nil {
			done.Go(l.presence.Close)
		}
	}
	done.Wait()
	c.http.CloseIdleConnections()
}

// user is a user of one day. Its acts are made one after another.
type user struct {
	crowd *crowd
	id    string

	mu    sync.Mutex // guards the fields below
	acts  []act
	busy  bool
	alive *life // nil while offline
	// liveSince is when the present stream became live. It is zero while there is none.
	liveSince time.Time
	// node is the index of the node of the last live stream, -1 before the first.
	node int
	last *change
	// out is set once the user has signed out.
	out bool
	// login is the present login. It is used by the goroutine that makes the acts.
	login *login
	// logins counts them.
	logins int
}

// life is the time from a connect to a disconnect of a user.
type life struct {
	login    *login
	client   *parley.Client
	presence *parley.Presence
	// parting is set once the user signs out. It is guarded by user.mu.
	parting *parting
}

// change is a connect or a disconnect, and when the watchers on each node had it.
type change struct {
	at      time.Time
	online  bool
	signOut bool
	phase   phase
	seen    [maxNodes]time.Time
}

func (u *user) do(ctx context.Context, a act) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.acts = append(u.acts, a)
	if !u.busy {
		u.busy = true
		go u.work(ctx)
	}
}

// work makes acts until there are none.
func (u *user) work(ctx context.Context) {
	for {
		u.mu.Lock()
		if len(u.acts) == 0 {
			u.busy = false
			u.mu.Unlock()
			return
		}
		next := u.acts[0]
		u.acts = u.acts[1:]
		u.mu.Unlock()
		switch next {
		case signsOut:
			if err := u.signOut(ctx); err != nil {
				u.crowd.fail(fmt.Errorf("%s: %w", u.id, err))
			}
			continue
		case reconnects, disconnects:
			u.disconnect()
		default:
		}
		if next != disconnects {
			if err := u.connect(ctx); err != nil {
				u.crowd.fail(fmt.Errorf("%s: %w", u.id, err))
			}
		}
		if next == reconnects {
			u.mu.Lock()
			u.last = nil // the server may merge both changes, so that no watcher sees them
			u.mu.Unlock()
		}
	}
}

func (u *user) connect(ctx context.Context) error {
	c := u.crowd
	if u.login == nil || c.ledger.isOver(u.login) {
		u.logins++
		u.login = c.ledger.enter(u.id, strconv.Itoa(u.logins))
	}
	token, err := c.mint(u.login)
	if err != nil {
		return err
	}
	l := &life{login: u.login}
	if l.client, err = parley.New(c.addrs, parley.WithToken(token), parley.WithHTTPClient(c.http)); err != nil {
		return err
	}
	u.change(change{online: true})
	u.mu.Lock()
	u.alive = l
	u.mu.Unlock()
	device := parley.Device{Platform: platform, ID: "irc"}
	l.presence = l.client.Presence(ctx, device, parley.OnState(func(s parley.StateChange) { u.state(l, s) }))
	return nil
}

// disconnect leaves on purpose, so that the user is offline at once.
func (u *user) disconnect() {
	u.mu.Lock()
	l := u.alive
	u.alive, u.liveSince = nil, time.Time{}
	u.mu.Unlock()
	u.change(change{})
	l.presence.Close()
	l.client.Close()
}

// change records that a connect or a disconnect begins.
func (u *user) change(next change) {
	c := u.crowd
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settle()
	next.at, next.phase = time.Now(), c.faults.current()
	u.last = &next
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
}

// settle keeps the times of the last change. Those of watchers on a node that failed meanwhile do
// not count. The caller holds the user's lock.
func (u *user) settle() {
	last := u.last
	u.last = nil
	if last == nil || u.node < 0 {
		return
	}
	c := u.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, at := range last.seen {
		if node == u.node || at.IsZero() || !c.faults.worksSince(node, last.at) {
			continue
		}
		times := c.times
		if last.signOut {
			times = c.signOuts
		}
		times[last.phase] = append(times[last.phase], at.Sub(last.at))
	}
}

// state records a new state of a presence.
func (u *user) state(l *life, s parley.StateChange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.alive != l {
		return
	}
	if l.parting != nil {
		l.parting.observe(s)
		return
	}
	switch s.State {
	case parley.StateLive:
		u.liveSince, u.node = time.Now(), u.crowd.nodes[s.Addr]
	case parley.StateEnded:
		u.liveSince = time.Time{}
		if errors.Is(s.Err, parley.ErrTokenRevoked) {
			u.crowd.ledger.accuse(refusedValid, 0, fmt.Sprintf("presence of %s on node %d", u.id, u.node))
			return
		}
		go u.crowd.fail(fmt.Errorf("%s: the presence ended: %w", u.id, s.Err))
	case parley.StateWaiting:
		u.crowd.ended(!u.liveSince.IsZero(), s.Err)
		u.liveSince = time.Time{}
	default:
		u.liveSince = time.Time{}
	}
}

// showed records that a watcher on a node has a state of the user.
func (u *user) showed(node int, online bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last != nil && u.last.online == online && u.last.seen[node].IsZero() {
		u.last.seen[node] = now
	}
}

// surelyOnline reports whether the user has had a live stream on a working node for the time late.
func (u *user) surelyOnline(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.liveSince.IsZero() && now.Sub(u.liveSince) > late && u.crowd.faults.worksSince(u.node, u.liveSince)
}

// differs describes what the user has yet to do, or returns "".
func (u *user) differs(online, out bool) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.busy:
		return "is busy"
	case out && !u.out:
		return "did not sign out"
	case !out && u.out:
		return "has signed out"
	case online && u.alive == nil:
		return "did not connect"
	case online && u.liveSince.IsZero():
		return "has no live stream"
	case !online && u.alive != nil:
		return "did not disconnect"
	default:
		return ""
	}
}
