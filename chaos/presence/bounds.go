package presence

import "time"

// The configuration of the fleet.
const (
	// leaseTTL is how long a node may be silent. It is twice the default, so that a node that is slow
	// on a machine with two loaded cores is not declared dead.
	leaseTTL = 8 * time.Second
	// offlineAfter is how long a platform stays online after its last connection was lost. It is
	// longer than the timeout of a step of Redis (2 s), after which a lost reply is noticed, so that
	// the stream of a user who returns after a brief absence is always written in time.
	offlineAfter = 3 * time.Second
	// partTTL is how long Redis keeps a part that is not renewed. It is short, so that parts are
	// renewed during a run, but longer than any fault.
	partTTL = time.Minute
)

// The bounds of the promises, with the time that a machine with two loaded cores adds.
const (
	// late is how late a state may be when nothing is broken but every hundredth reply of Redis is
	// lost: 2 s are promised.
	late = 5 * time.Second
	// reads is the age of a state in an answer of GetPresence and ListOnlineUsers, 2 s, besides late.
	reads = 2 * time.Second
	// recovery is how long after the end of a fault its effects may last: 5 s are promised after
	// Redis was away.
	recovery = 8 * time.Second
	// settling is how long after a loss of data Redis may lack parts: 10 s, if a node does not restore
	// its own. Until then parts are written without an entry of the log.
	settling = 10*time.Second + late
	// death is how long the users of a node that has died may be shown online: the lease, a second
	// until a beat notices its end, the sweep, and 2 s without NATS.
	death = leaseTTL + 10*time.Second
	// silence is how long a node may be silent on Redis and NATS and is surely not declared dead: its
	// last beat may be a quarter of the lease old, and have taken time.
	silence = leaseTTL / 2
	// storeless is how long a node that alone cannot reach Redis is surely not declared dead: its
	// peers renew its lease for 15 s.
	storeless = 14 * time.Second
	// brief is how long a user may be away without being shown offline, after an ordinary end of the
	// stream; see offlineAfter. briefHandover applies if the node died or handed the stream over: its
	// entries stay until the lease ends.
	brief         = 500 * time.Millisecond
	briefHandover = 2 * time.Second
	// pings is how long a node may take to notice that a client cannot be reached: up to 30 s.
	pings = 35 * time.Second
	// delivery is how long the client may take to notice the end of a stream.
	delivery = 2 * time.Second
	// kicks is how long two logins of a slot may both have streams: 100 ms are promised, and 2 s more
	// if a reply of Redis is lost.
	kicks = 5 * time.Second
)

// The limits of a run.
const (
	// settleLimit is the time within which all views must agree after the last fault was mended: a
	// node may have died just before.
	settleLimit = death + recovery + 20*time.Second
	// emptyLimit is the time within which Redis must be empty after all devices have left.
	emptyLimit = death + recovery
)
