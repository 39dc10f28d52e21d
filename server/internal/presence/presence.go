// Package presence keeps which users are online, on which platforms, and sends every change to the
// streams that watch them.
//
// # The state of a user
//
// The connections of a user on one node determine the node's part of the user's state; the state
// is the union of all parts. A node writes a part when it changes, as a whole and never as an
// operation, so writes may be merged, repeated and reordered. The Store keeps the parts with an
// expiry, and appends an entry to the log of the user's shard if the union has changed.
//
// # How changes reach the watchers
//
// The node whose step appended an entry announces it to all nodes over the Bus. Announcements are
// hints. Each node follows the log of every shard by position (view): it applies the next entry,
// drops repeats, and reads what it has missed. The ends of all logs are broadcast once a second
// (heads), so a lost announcement costs at most that. What a node knows of a shard has a proven
// age by the store's clock: the time of the last head that it was level with.
//
// # When a node dies
//
// A node has a presence id and a lease on it in the Store, which it renews itself and which every
// peer renews that hears it. When the lease has ended, the owners of the shards fence the id, so
// that the node can write nothing under it, and remove its parts (sweep). A node that
// finds that it was declared dead continues under a new id.
//
// # When the store loses data
//
// Each log has an epoch. If the epoch is gone or a position has gone back, a new epoch begins:
// every node writes the parts of its users again without logging them (restore). Until all have,
// the shard is unsettled, and the absence of a user is no answer.
//
// # Locks
//
// Locks are taken in these orders, from left to right:
//
//	Stream.edit, channelWatch.edit, viewShard.mu, channelWatch.mu, Stream.mu
//	logins.mu, connShard.mu, worker.mu, lease.mu
//
// view.channelMu, view.streamMu and the locks of the reader, the sweeper, the shard queues and the
// schedules are leaves, except that a schedule's is taken under view.channelMu. None is held during
// I/O, nor while the view calls the hub.
package presence

import (
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// UserState is the presence of a user.
type UserState struct {
	UserID string
	State  State
	// Revision orders the states of a user within one stream: the higher one is newer. It is 0 for
	// answers that belong to no stream.
	Revision int64
}

// ChannelState is which members of a channel are online.
type ChannelState struct {
	ChannelID string
	// Online and Members count members.
	Online, Members int
	// Complete reports that Users are all members that are online; otherwise they are those whose
	// state has changed. There are none if Members is above Config.ChannelMembers.
	Complete bool
	Users    []UserState
	Revision int64
	// Lost is why the stream no longer watches the channel; empty if it does. It is NOT_MEMBER after
	// Hub.Expel, LIMIT_EXCEEDED if the channel has too many members, and NODE_FULL if the watched
	// channels of the node have. There are no counts and no users then.
	Lost fault.Reason
}

// ChannelRef names a channel to watch.
type ChannelRef struct {
	ID string
	// Exempt means that the user may read the channel without being a member. Hub.WatchingSubjects and
	// Hub.Expel leave the channel out then.
	Exempt bool
}

// KickCause is why a login ended.
type KickCause uint8

// The causes. The values are those of parley.v1.KickCause.
const (
	// ByLogin: a newer login of the user won.
	ByLogin KickCause = iota + 1
	// Replaced: the login has a newer connection.
	Replaced
)

// Login identifies a user's login. It is what a login token contains.
type Login struct {
	Device     string
	Generation int64
}

// Policy is how many logins of a user are valid at a time.
type Policy string

// The policies.
const (
	// PolicyAll: all of them.
	PolicyAll Policy = "all"
	// PolicyPlatform: one per platform.
	PolicyPlatform Policy = "platform"
	// PolicyClass: one per class of platforms: mobile, desktop, web and other.
	PolicyClass Policy = "class"
	// PolicySingle: one.
	PolicySingle Policy = "single"
)

// slot returns the slot that a login on p has under the policy; logins of a user with the same slot
// exclude each other. It is empty under PolicyAll.
func (policy Policy) slot(p Platform) string {
	switch policy {
	case PolicyPlatform:
		return platformSlots[p]
	case PolicyClass:
		switch {
		case p <= AndroidTablet:
			return "mobile"
		case p <= Linux:
			return "desktop"
		case p == Web:
			return "web"
		default:
			return "other"
		}
	case PolicySingle:
		return "any"
	default:
		return ""
	}
}

var platformSlots = [...]string{
	IOS: "p1", Android: "p2", IPadOS: "p3", AndroidTablet: "p4", Windows: "p5", MacOS: "p6", Linux: "p7", Web: "p8", Other: "p9",
}

// unavailable returns the fault of a call whose answer would not be certain.
func unavailable() *fault.Error {
	f := fault.New(fault.Unavailable, fault.StoreUnavailable, "the presence of these users cannot be read at the moment")
	f.RetryAfter = time.Second
	return f
}
