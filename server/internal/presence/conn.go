package presence

import (
	"slices"
	"sync"
	"time"
)

// connState is the state of a connection.
//
//	connLive ------ lost -----> connLingering
//	connLive ------ removed --> connGone
//	connLingering - removed --> connGone
type connState uint8

const (
	// connLive: its stream lives.
	connLive connState = iota
	// connLingering: its stream has ended less than Config.OfflineAfter ago, and the user may return.
	connLingering
	// connGone: it has no part in its user's state.
	connGone
)

// conn is a connection: a stream that makes a device of a user online. The mutex of the user's
// connShard guards its fields, except for those that never change.
type conn struct {
	// These never change.
	id       string
	streamID string
	user     string
	shard    int
	slot     string // under the login policy; empty if it has none
	platform Platform
	device   string
	arrived  time.Time // by this node's clock

	stream *Stream // nil once the connection is not live

	state      connState
	background bool
	login      loginState
}

// user is a user with connections on this node, or whose part in the store is not known to be
// empty. The mutex of its connShard guards it.
type user struct {
	id    string
	conns []*conn // live and lingering ones

	// written is the part that the store has if sure is set, and epoch the epoch in which it was
	// written.
	written State
	epoch   string
	sure    bool
	// queued is set while the user waits for its worker.
	queued bool
	// cause is why the part has to be written.
	cause Cause
	// rewriteAt is when the part has to be written again, because an earlier step without a response
	// may take effect until then; zero if it has not.
	rewriteAt time.Time
}

// part returns the state that follows from the user's connections. A lingering connection keeps its
// platform online, and does not count for the flag of a platform that has a live one.
func (u *user) part() State {
	var s State
	for _, c := range u.conns {
		if c.state == connLive {
			s = s.With(c.platform, c.background)
		}
	}
	live := s
	for _, c := range u.conns {
		if c.state == connLingering && !live.Has(c.platform) {
			s = s.With(c.platform, c.background)
		}
	}
	return s
}

// idle reports whether nothing is left to know or to do about the user.
func (u *user) idle() bool {
	return len(u.conns) == 0 && u.sure && u.written == 0 && !u.queued && u.rewriteAt.IsZero()
}

// connShard holds the users of a shard.
type connShard struct {
	mu    sync.Mutex // guards the users and their connections
	users map[string]*user
	// restoring is the epoch in which parts are still to be written without logging them, restored the
	// epoch in which all are. One of them is empty; both are before the first epoch.
	restoring, restored string
}

// connections are the connections of this node.
type connections struct {
	shards [Shards]connShard
	// dirty queues a user whose part may have to be written. It does not block. It is called with the
	// shard's mutex held.
	dirty        func(shard int, u *user)
	offlineAfter time.Duration
}

func newConnections(offlineAfter time.Duration, dirty func(shard int, u *user)) *connections {
	c := &connections{offlineAfter: offlineAfter, dirty: dirty}
	for i := range c.shards {
		c.shards[i].users = map[string]*user{}
	}
	return c
}

// user returns a user of the shard, which it creates if necessary. The shard's mutex must be held.
func (sh *connShard) user(id string) *user {
	u := sh.users[id]
	if u == nil {
		u = &user{id: id, sure: true}
		sh.users[id] = u
	}
	return u
}

// add adds a live connection. The device's lingering connection ends: it has returned, and may
// leave on purpose before the other one's time is over.
func (cs *connections) add(c *conn) {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := sh.user(c.user)
	u.conns = append(u.conns, c)
	for _, other := range slices.Clone(u.conns) {
		if other.state == connLingering && other.platform == c.platform && other.device == c.device {
			cs.drop(other, u)
		}
	}
	cs.changed(c.shard, u, Connected)
}

// lost ends a live connection whose user may return: it lingers for offlineAfter if it is the last
// one of its platform.
func (cs *connections) lost(c *conn) {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c.state != connLive {
		return
	}
	u := sh.users[c.user]
	if cs.offlineAfter <= 0 || u.lives(c) {
		cs.drop(c, u)
		return
	}
	c.state, c.stream = connLingering, nil
	time.AfterFunc(cs.offlineAfter, func() { cs.remove(c) })
	cs.changed(c.shard, u, Connected) // its flag may have changed
}

// lives reports whether another connection of c's platform is live.
func (u *user) lives(c *conn) bool {
	for _, other := range u.conns {
		if other != c && other.state == connLive && other.platform == c.platform {
			return true
		}
	}
	return false
}

// remove ends a connection at once. It may be called twice.
func (cs *connections) remove(c *conn) {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c.state != connGone {
		cs.drop(c, sh.users[c.user])
	}
}

// leave ends the connection of a user's stream at once, whether it lives or lingers.
func (cs *connections) leave(userID, streamID string) {
	sh := &cs.shards[ShardOf(userID)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := sh.users[userID]
	if u == nil {
		return
	}
	for _, c := range u.conns {
		if c.streamID == streamID {
			cs.drop(c, u)
			return
		}
	}
}

// drop removes a connection from its user. The shard's mutex must be held.
func (cs *connections) drop(c *conn, u *user) {
	c.state, c.stream = connGone, nil
	for i, other := range u.conns {
		if other == c {
			u.conns = append(u.conns[:i], u.conns[i+1:]...)
			break
		}
	}
	cs.changed(c.shard, u, Connected)
}

// setBackground sets the flag of a live connection.
func (cs *connections) setBackground(c *conn, background bool) {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c.state == connLive && c.background != background {
		c.background = background
		cs.changed(c.shard, sh.users[c.user], Connected)
	}
}

// changed queues a user if its part differs from what the store has. The shard's mutex must be
// held.
func (cs *connections) changed(shard int, u *user, cause Cause) {
	if u.sure && u.written == u.part() {
		cs.collect(shard, u)
		return
	}
	u.cause = cause
	cs.dirty(shard, u)
}

// unsure queues a user although its part may be what the store has. The shard's mutex must be held.
func (cs *connections) unsure(shard int, u *user, cause Cause) {
	u.sure, u.cause = false, cause
	cs.dirty(shard, u)
}

// collect forgets a user that is idle. The shard's mutex must be held.
func (cs *connections) collect(shard int, u *user) {
	if u.idle() {
		delete(cs.shards[shard].users, u.id)
	}
}

// renew queues all users of a shard, so that their entries do not expire.
func (cs *connections) renew(shard int) {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, u := range sh.users {
		if u.written != 0 || len(u.conns) > 0 {
			cs.unsure(shard, u, Repaired)
		}
	}
}

// ghosts queues users of whom the store has a part of this node although the node has none. It
// returns how many of them wait to be written.
func (cs *connections) ghosts(shard int, users []string) (waiting int) {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, id := range users {
		u := sh.users[id]
		if u == nil {
			u = sh.user(id)
			cs.unsure(shard, u, Repaired)
		}
		if len(u.conns) == 0 && u.cause == Repaired {
			waiting++
		}
	}
	return waiting
}

// reconcile queues a user whose state lacks something of this node's part.
func (cs *connections) reconcile(shard int, e *Entry) {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := sh.users[e.UserID]
	if u == nil || u.queued {
		return
	}
	for p, background := range u.part().All {
		if !e.State.Has(p) || e.State.Background(p) && !background {
			cs.unsure(shard, u, Repaired)
			return
		}
	}
}

// count returns the number of users with a connection, and of connections.
func (cs *connections) count() (users, conns int) {
	for i := range cs.shards {
		sh := &cs.shards[i]
		sh.mu.Lock()
		for _, u := range sh.users {
			if len(u.conns) > 0 {
				users++
			}
			conns += len(u.conns)
		}
		sh.mu.Unlock()
	}
	return users, conns
}

// reset marks the parts of all users as not written, because the node writes under a new presence
// id. Lingering connections end: their users were shown offline already. Users without a connection
// are forgotten: the sweep removes their parts.
func (cs *connections) reset() {
	for shard := range cs.shards {
		sh := &cs.shards[shard]
		sh.mu.Lock()
		if sh.restoring != "" { // nothing was written under the new id
			sh.restoring, sh.restored = "", sh.restoring
		}
		for _, u := range sh.users {
			u.conns = slices.DeleteFunc(u.conns, func(c *conn) bool {
				if c.state == connLingering {
					c.state = connGone
				}
				return c.state == connGone
			})
			u.written, u.sure, u.rewriteAt, u.epoch = 0, true, time.Time{}, ""
			cs.changed(shard, u, Connected)
		}
		sh.mu.Unlock()
	}
}

// live calls fn for the live connections of the node, shard by shard, without a lock held.
func (cs *connections) live(fn func(c *conn)) {
	for shard := range cs.shards {
		for _, c := range cs.liveOf(shard) {
			fn(c)
		}
	}
}

// liveOf returns the live connections of a shard.
func (cs *connections) liveOf(shard int) []*conn {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var live []*conn
	for _, u := range sh.users {
		for _, c := range u.conns {
			if c.state == connLive {
				live = append(live, c)
			}
		}
	}
	return live
}

// isLive reports whether a connection is live.
func (cs *connections) isLive(c *conn) bool {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return c.state == connLive
}

// generation returns the generation of a connection's login.
func (cs *connections) generation(c *conn) int64 {
	sh := &cs.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return c.login.generation
}
