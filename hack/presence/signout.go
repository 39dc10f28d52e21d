package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// signOutWait is how long SignOut is repeated until it succeeds.
	signOutWait = time.Minute
	// holders is how many of those who sign out there are for each who holds more streams meanwhile.
	holders = 8
	// broken is how many of those who sign out there are for each with whom the mode Break does
	// something wrong.
	broken = 50
)

// The modes of Break.
const (
	// breakUnrevoked tells the ledger of sign-outs that were not made.
	breakUnrevoked = "unrevoked"
	// breakUntold makes sign-outs of which the ledger is not told.
	breakUntold = "untold"
)

// capabilities are those of the users' tokens.
func capabilities(user string) map[string][]string {
	return map[string][]string{
		"presence": {"connect", "watch"}, channelOf(user): {"subscribe", "history"}, "queue:" + topic: {"consume"},
	}
}

// mint returns a new token of a login.
func (c *crowd) mint(l *login) (string, error) {
	token, err := rig.LoginToken(c.fleet.Secret(), l.user, l.ssid, tokenTTL, capabilities(l.user))
	if err == nil {
		c.ledger.mint(l, token)
	}
	return token, err
}

// parting is what is observed of a presence whose user signs out.
type parting struct {
	// node is the node of the live stream, -1 if there is none.
	node int
	// other is true once the stream ended for another reason, such as a killed node.
	other bool
	// over is closed when the presence has ended, at the time at and with err.
	over chan struct{}
	at   time.Time
	err  error
	// lives are the times at which the presence was live again.
	lives []time.Time
}

// observe records a state. The caller holds the user's lock.
func (p *parting) observe(s parley.StateChange) {
	switch s.State {
	case parley.StateLive:
		p.lives = append(p.lives, time.Now())
	case parley.StateWaiting:
		p.other = true
	case parley.StateEnded:
		p.at, p.err = time.Now(), s.Err
		close(p.over)
	default:
	}
}

// signOut signs the user's login out, while streams with its token are open, and waits until they
// have ended.
func (u *user) signOut(ctx context.Context) error {
	c := u.crowd
	h := digest(c.seed, "sign-out", u.id)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	release := func() {}
	if h%holders == 0 {
		var err error
		if release, err = u.holdStreams(ctx, int(h>>8%maxNodes), &waiting); err != nil {
			return err
		}
	}
	u.mu.Lock()
	l := u.alive
	p := &parting{node: u.node, over: make(chan struct{})}
	if u.liveSince.IsZero() {
		p.node = -1
	}
	l.parting, u.liveSince = p, time.Time{}
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		u.alive, u.out = nil, true
		u.mu.Unlock()
		l.presence.Close()
		l.client.Close()
	}()
	u.change(change{signOut: true})
	during := c.faults.current()
	wrong := c.breaks
	if h>>16%broken != 0 {
		wrong = ""
	}
	defer func() { time.AfterFunc(grace+grace/2, release) }()
	if wrong != breakUntold {
		c.ledger.begin(l.login)
	}
	if wrong != breakUnrevoked {
		if err := u.callSignOut(ctx, l, h>>32%2 == 0); err != nil {
			c.ledger.accuse(failedSignOut, 0, fmt.Sprintf("%s, for %v: %v", u.id, signOutWait, err))
			return nil // the user leaves without
		}
	}
	if wrong == breakUntold {
		return nil
	}
	c.ledger.done(l.login, during)
	c.thieves.signedOut(l.login, during)
	u.awaitEnd(l, during)
	return nil
}

// callSignOut calls SignOut, which the SDK repeats until it succeeds, with the client of the
// presence or with another one, which may use another node.
func (u *user) callSignOut(ctx context.Context, l *life, same bool) error {
	ctx, cancel := context.WithTimeout(ctx, signOutWait)
	defer cancel()
	client, c := l.client, u.crowd
	if !same {
		var err error
		if client, err = parley.New(c.addrs, parley.WithToken(c.ledger.lastToken(l.login)), parley.WithHTTPClient(c.http)); err != nil {
			return err
		}
		defer client.Close()
	}
	if err := client.SignOut(ctx); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	return nil
}

// awaitEnd waits until the presence of a login that was signed out has ended, and judges that.
func (u *user) awaitEnd(l *life, during phase) {
	c := u.crowd
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-l.parting.over:
	case <-timer.C:
	}
	u.mu.Lock()
	p := *l.parting
	u.mu.Unlock()
	began, returned := c.ledger.times(l.login)
	for _, at := range p.lives {
		if after := at.Sub(returned); after > grace {
			c.ledger.accuse(acceptedRevoked, after, fmt.Sprintf("presence of %s, live %.2f s after its sign-out", u.id, after.Seconds()))
		}
	}
	one := trial{login: l.login, kind: "presence", node: p.node}
	switch {
	case p.at.IsZero():
		c.ledger.accuse(endedLate, endWait, fmt.Sprintf("presence of %s on node %d, still open %v after its sign-out", u.id, p.node, endWait))
	case !errors.Is(p.err, parley.ErrTokenRevoked):
		c.ledger.accuse(endedOtherwise, 0, fmt.Sprintf("presence of %s: %v", u.id, p.err))
	case p.node < 0 || p.other || len(p.lives) > 0:
		c.ledger.count("presences that were between two streams when their users signed out")
	default:
		c.ledger.judgeEnd(&one, refused, p.at, c.faults.worksSince(p.node, began), during)
	}
}

// holdStreams opens a stream of each service with the user's token, and one with the token of
// another login of the user, which must go on until the returned function is called. It adds to
// waiting what waits for their ends.
func (u *user) holdStreams(ctx context.Context, node int, waiting *sync.WaitGroup) (release func(), err error) {
	c := u.crowd
	u.mu.Lock()
	own := u.alive.login
	u.mu.Unlock()
	hold := func(l *login, kind string) *held {
		n := c.thieves.nodes[node%maxNodes]
		node++
		one := trial{login: l, kind: kind, node: n.node, sent: time.Now()}
		h, a, err := n.open(ctx, one, c.ledger.lastToken(l))
		c.ledger.judge(&one, a, time.Now(), c.faults.present())
		if h == nil {
			c.ledger.count(fmt.Sprintf("streams of %s could not be opened before a sign-out: %v", kind, connect.CodeOf(err)))
			return nil
		}
		c.ledger.count(fmt.Sprintf("streams of %s were open before a sign-out", kind))
		return h
	}
	for _, kind := range []string{"Subscribe", "Consume", "Connect"} {
		if h := hold(own, kind); h != nil {
			waiting.Go(func() { c.thieves.await(ctx, h, endWait) })
		}
	}
	twin := c.ledger.enter(u.id, "other")
	if _, err := c.mint(twin); err != nil {
		return nil, err
	}
	h := hold(twin, "Subscribe")
	if h == nil {
		return func() {}, nil
	}
	waiting.Go(func() { c.thieves.await(ctx, h, signOutWait) })
	return h.release, nil
}
