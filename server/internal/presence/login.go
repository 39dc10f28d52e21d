package presence

import (
	"context"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

const (
	// loginWait bounds how long a new stream waits for the decision about its login. After it the
	// stream begins with a provisional login, which is entered as soon as the store responds.
	loginWait = time.Second
	// newerWithin is the time within which the decision about a new connection makes it newer than any
	// other, although the nodes' estimates of the time of its arrival may differ by as much.
	newerWithin = 500 * time.Millisecond
	// reloginPause is the time between two attempts to enter logins.
	reloginPause = 250 * time.Millisecond
	// maxLogins bounds the logins of one round trip.
	maxLogins = 100
)

// loginState is where a connection stands in the order of its slot's logins. The mutex of the
// user's connShard guards it.
type loginState struct {
	// generation and order are 0 until the time of the connection's arrival is known. They are fixed
	// before the store is asked to decide by them. So a step whose response is lost decides nothing
	// that the login token, which the client has, does not say.
	generation, order int64
	// fresh is set if the login is new: it does not continue an earlier one.
	fresh bool
	// decided is set once the store has accepted the login.
	decided bool
	// seen is the newest other login of the slot that was logged before the decision; nil if none
	// was.
	seen *Winner
}

// newer reports whether w is newer than the login with this generation and order.
func (w *Winner) newer(generation, order int64) bool {
	return w.Generation > generation || w.Generation == generation && w.Order > order
}

// newer reports whether the login is newer than w.
func (s *loginState) newer(w *Winner) bool {
	return s.generation > w.Generation || s.generation == w.Generation && s.order > w.Order
}

// kicked returns the fault of a stream whose login was replaced by w.
func kicked(w *Winner, generation int64) *fault.Error {
	cause, msg := ByLogin, "the user logged in on another device"
	if w.Generation == generation {
		cause, msg = Replaced, "the same login has a newer connection"
	}
	f := fault.New(fault.FailedPrecondition, fault.Kicked, "%s", msg)
	f.Kick = &fault.Kick{Cause: uint8(cause), Platform: uint8(w.Platform), Device: w.Device, Connection: w.Connection}
	return f
}

// logins enters the logins of connections for their slots.
type logins struct {
	hub *Hub

	wake chan struct{}

	mu sync.Mutex // guards pending
	// pending holds the connections whose login has to be entered.
	pending map[*conn]struct{}
}

func newLogins(h *Hub) *logins {
	return &logins{hub: h, wake: make(chan struct{}, 1), pending: map[*conn]struct{}{}}
}

// enter enters a new connection's login, and waits for the decision for up to loginWait. It returns
// a KICKED fault if a newer login has the slot.
func (l *logins) enter(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	for {
		undecided, err := l.try(ctx, []*conn{c})
		if err != nil || len(undecided) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			l.provisional(c)
			return nil
		case <-time.After(reloginPause / 10):
		}
	}
}

// provisional lets a connection live until the store responds.
func (l *logins) provisional(c *conn) {
	now := l.hub.clock.now(c.shard)
	if now.IsZero() {
		now = time.Now()
	}
	sh := &l.hub.conns.shards[c.shard]
	sh.mu.Lock()
	c.assign(now)
	sh.mu.Unlock()
	l.again([]*conn{c})
}

// assign sets the place of a new connection in the order of logins: that of the moment at which it
// arrived, by the estimate of the store's present time. So a login that arrived later, and that the
// store has accepted meanwhile, stays the newer one. The shard's mutex must be held.
func (c *conn) assign(now time.Time) {
	arrived := now.Add(-time.Since(c.arrived)).UnixMicro()
	if c.login.generation == 0 {
		c.login.generation = arrived
	}
	if c.login.order == 0 {
		c.login.order = arrived
	}
}

// pass sets the place of a new connection after that of w, which has the slot. It reports false for
// one that has not just arrived, or that is neither of a new login nor of that of w. The shard's
// mutex must be held.
func (c *conn) pass(w *Winner) bool {
	switch {
	case c.login.decided || time.Since(c.arrived) > newerWithin:
		return false
	case c.login.fresh:
		c.login.generation = max(c.login.generation, w.Generation+1)
		return true
	case c.login.generation == w.Generation:
		c.login.order = max(c.login.order, w.Order+1)
		return true
	default:
		return false
	}
}

// again queues connections whose login has to be entered.
func (l *logins) again(conns []*conn) {
	l.mu.Lock()
	for _, c := range conns {
		if c.slot != "" {
			l.pending[c] = struct{}{}
		}
	}
	n := len(l.pending)
	l.mu.Unlock()
	if n > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run enters pending logins until ctx ends.
func (l *logins) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for conns := l.take(); len(conns) > 0; conns = l.take() {
			undecided, _ := l.try(ctx, conns) // the streams of losers have their faults
			if len(undecided) == 0 {
				continue
			}
			l.again(undecided)
			select {
			case <-ctx.Done():
				return
			case <-time.After(reloginPause):
			}
		}
	}
}

// take removes up to maxLogins live connections from those that wait.
func (l *logins) take() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	var conns []*conn
	for c := range l.pending {
		if len(conns) == maxLogins {
			break
		}
		delete(l.pending, c)
		if l.hub.conns.isLive(c) {
			conns = append(conns, c)
		}
	}
	return conns
}

// try makes one attempt to enter logins. It returns the connections whose login was not decided,
// and the fault of the last one that lost.
func (l *logins) try(ctx context.Context, conns []*conn) (undecided []*conn, err error) {
	id, ok := l.hub.lease.current()
	if !ok {
		return conns, nil
	}
	entered := make([]*conn, 0, len(conns))
	calls := make([]LoginCall, 0, len(conns))
	for _, c := range conns {
		call, ok := l.call(c, id)
		if !ok {
			l.hub.epochDiffers(c.shard)
			undecided = append(undecided, c)
			continue
		}
		entered, calls = append(entered, c), append(calls, call)
	}
	if len(calls) == 0 {
		return undecided, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.hub.cfg.StoreTimeout)
	defer cancel()
	sent := time.Now()
	results := l.hub.cfg.Store.Login(ctx, calls)
	for i, c := range entered {
		r := &results[i]
		l.hub.clock.saw(c.shard, r.Now, sent)
		switch r.Outcome {
		case Done:
			decided, lost := l.settle(c, &calls[i], r)
			if lost != nil {
				err = lost
			}
			if decided {
				continue
			}
		case Fenced:
			l.hub.fenced(id)
		case OtherEpoch:
			l.hub.epochDiffers(c.shard)
		case Late, Unknown:
		}
		undecided = append(undecided, c)
	}
	return undecided, err
}

// call returns the step that enters a connection's login. It reports false while the epoch or the
// store's time is not known.
func (l *logins) call(c *conn, node string) (LoginCall, bool) {
	epoch, now := l.hub.epoch(c.shard), l.hub.clock.now(c.shard)
	if epoch == "" || now.IsZero() {
		return LoginCall{}, false
	}
	sh := &l.hub.conns.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c.assign(now)
	return LoginCall{
		Shard: c.shard, UserID: c.user, Epoch: epoch,
		Winner: Winner{
			Slot: c.slot, Generation: c.login.generation, Order: c.login.order, Connection: c.id, Node: node,
			Platform: c.platform, Device: c.device,
		},
		NotAfter: l.hub.clock.notAfter(c.shard, l.hub.cfg.StoreTimeout),
	}, true
}

// settle records a decision. It ends the connection if it lost, or if a newer login was logged
// meanwhile, and returns why. It reports false if the connection is to be entered again.
func (l *logins) settle(c *conn, call *LoginCall, r *LoginResult) (decided bool, err error) {
	if r.Seq != 0 {
		w := r.Winner
		l.hub.appended(Announcement{Shard: c.shard, Epoch: call.Epoch, Entries: []Entry{
			{Seq: r.Seq, At: r.Now, UserID: c.user, Login: &w},
		}})
	}
	sh := &l.hub.conns.shards[c.shard]
	sh.mu.Lock()
	var winner *Winner
	switch {
	case !r.Won && c.pass(&r.Winner):
		sh.mu.Unlock()
		return false, nil
	case !r.Won:
		winner = &r.Winner
	default:
		c.login.generation, c.login.order, c.login.decided = r.Winner.Generation, r.Winner.Order, true
		if seen := c.login.seen; seen != nil && seen.newer(c.login.generation, c.login.order) {
			winner = seen
		}
		c.login.seen = nil
	}
	generation := c.login.generation
	sh.mu.Unlock()
	if winner == nil {
		return true, nil
	}
	return true, l.hub.kick(c, winner, generation)
}

// logged ends the connections of this node that a logged login has replaced.
func (l *logins) logged(shard int, e *Entry) {
	type loser struct {
		c          *conn
		generation int64
	}
	var losers []loser
	sh := &l.hub.conns.shards[shard]
	sh.mu.Lock()
	if u := sh.users[e.UserID]; u != nil {
		for _, c := range u.conns {
			switch {
			case c.state != connLive || c.slot != e.Login.Slot || c.id == e.Login.Connection:
			case !c.login.decided:
				if c.login.seen == nil || e.Login.newer(c.login.seen.Generation, c.login.seen.Order) {
					c.login.seen = e.Login
				}
			case !c.login.newer(e.Login): // of two that are equal, the one that was entered last
				losers = append(losers, loser{c, c.login.generation})
			}
		}
	}
	sh.mu.Unlock()
	for _, k := range losers {
		_ = l.hub.kick(k.c, e.Login, k.generation)
	}
}
