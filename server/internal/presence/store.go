package presence

import (
	"context"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Shards is the number of shards that users are divided into. It is a constant of the stored data.
const Shards = 256

// ShardOf returns the shard of a user, from 0 to Shards-1.
func ShardOf(userID string) int { return int(xxhash.Sum64String(userID) % Shards) }

// Store keeps presence. Each shard of users has their states, a log of the changes, and what is
// needed to repair both; all of a shard changes in atomic steps. It is safe for concurrent use.
//
// Times are the store's own, which the store reads in each step. In a cluster each shard may have
// another clock.
//
// A step whose response was lost may take effect later, but never after its NotAfter. A method
// whose argument is a list makes one round trip and returns one result per item, in order; each has
// an error of its own.
type Store interface { //nolint:interfacebloat // one store that has all of a shard
	// Set replaces the parts of a node in the states of users.
	Set(ctx context.Context, calls []SetCall) []SetResult
	// Get reads the states of users.
	Get(ctx context.Context, calls []GetCall) []GetResult
	// Heads reads the ends of the logs of shards.
	Heads(ctx context.Context, shards []int) []HeadResult
	// Since reads entries of logs.
	Since(ctx context.Context, calls []SinceCall) []SinceResult
	// Page reads up to limit users of a shard that are online, in ascending order of their ids (by
	// bytes), beginning after the user id after; empty begins with the first.
	Page(ctx context.Context, shard int, after string, limit int) (PageResult, error)

	// Login decides which login of a user has a slot.
	Login(ctx context.Context, calls []LoginCall) []LoginResult

	// Beat renews the lease of a node, and of peers that it hears.
	Beat(ctx context.Context, beat Beat) (BeatResult, error)
	// Fence makes every later step of a node in a shard fail with Fenced, except for sweeps. It may
	// be repeated.
	Fence(ctx context.Context, shard int, node string) error
	// Members reads some of the users of whom a node has a part in a shard. cursor is 0 at first and
	// then the cursor of the previous result, which is 0 at the end. A user that has a part during
	// the whole iteration is returned at least once.
	Members(ctx context.Context, shard int, node string, cursor uint64) (users []string, next uint64, err error)

	// Open begins a new epoch of a shard unless its epoch is no longer old; empty stands for a shard
	// without an epoch. The states stay; the log, its positions, and the restored nodes do not. It
	// returns the head after that, which is another caller's if that one was first.
	Open(ctx context.Context, shard int, old, epoch string) (Head, error)
	// Restored records that a node has written the parts of all its users since the epoch began. It
	// does nothing in another epoch, or in one that is settled.
	Restored(ctx context.Context, shard int, epoch, node string) error
	// Settle records that an epoch is settled. It does nothing in another epoch.
	Settle(ctx context.Context, shard int, epoch string) error
	// RestoredNodes returns the nodes of which Restored recorded that they are restored in the
	// shard's epoch, and the head.
	RestoredNodes(ctx context.Context, shard int) (Head, []string, error)
}

// Outcome is what became of a step that has a NotAfter.
type Outcome uint8

// The outcomes.
const (
	// Unknown: there was no response. The step may still take effect until its NotAfter.
	Unknown Outcome = iota
	// Done: the step took effect.
	Done
	// Late: the step's NotAfter had passed. It changed nothing.
	Late
	// Fenced: the node was declared dead. The step changed nothing.
	Fenced
	// OtherEpoch: the shard has another epoch, or none. The step changed nothing.
	OtherEpoch
)

// Mode is what Set does besides changing the state.
type Mode uint8

// The modes.
const (
	// Normal logs a change of the user's state.
	Normal Mode = iota
	// Restore logs nothing while the epoch is not settled: the part was there before the store lost
	// it. Afterwards it is Normal, because the user counts as offline.
	Restore
	// Force logs that the user is offline, also if the stored state was offline already: the user
	// left while the store had lost the state.
	Force
)

// Cause is why a state changed.
type Cause uint8

// The causes.
const (
	// Connected: a device connected, disconnected or went to or from the background.
	Connected Cause = iota + 1
	// NodeLost: a node died.
	NodeLost
	// Repaired: the stored state did not agree with the connections.
	Repaired
)

// Part is the state of a user as far as it follows from the connections of one node. The user's
// state is the union of all nodes' parts.
type Part struct {
	UserID string
	// State is zero if the node has no connection of the user.
	State State
	Mode  Mode
	Cause Cause
}

// SetCall replaces the parts of up to 100 users of a shard. A user must not be repeated.
type SetCall struct {
	Shard int
	// Node is the presence id of the node whose parts these are.
	Node string
	// Epoch is the epoch that the shard must have.
	Epoch string
	// NotAfter is the latest time, by the store's clock, at which the step may take effect.
	NotAfter time.Time
	// Sweep is set by those who remove the parts of a dead node, which the fence lets through.
	Sweep bool
	Users []Part
}

// SetResult is the result of a SetCall.
type SetResult struct {
	Outcome Outcome
	// Now is the store's time. It is zero if Outcome is Unknown.
	Now time.Time
	// Seq and LastAt are those of the Head after the step if Outcome is Done.
	Seq    int64
	LastAt time.Time
	// Changes has an element per user of the call if Outcome is Done.
	Changes []SetChange
	// Err is set if Outcome is Unknown.
	Err error
}

// SetChange is what a SetCall did to a user.
type SetChange struct {
	// Seq is the position of the entry that was logged; 0 if none was.
	Seq int64
	// State is the user's state after the step.
	State State
}

// Head is the end of a shard's log.
type Head struct {
	// Epoch identifies the log. It is empty if the store has none, for example after a flush.
	Epoch string
	// Seq is the position of the last entry; 0 if there is none.
	Seq int64
	// LastAt is the store's time of the last entry; zero if there is none. A store that has gone back
	// may have another entry at a position, but of another time.
	LastAt time.Time
	// Opened is when the epoch began.
	Opened time.Time
	// SettledAt is when the states were complete: every node alive had written its parts since the
	// epoch began. It is zero until then: a user that the store does not have may be online.
	SettledAt time.Time
}

// Settled reports whether the epoch is settled.
func (h *Head) Settled() bool { return !h.SettledAt.IsZero() }

// GetCall reads the states of users of a shard.
type GetCall struct {
	Shard int
	Users []string
}

// GetResult is the result of a GetCall.
type GetResult struct {
	Head
	Now time.Time
	// States has an element per user of the call. They are the states at the position Seq.
	States []State
	Err    error
}

// HeadResult is the head of a shard.
type HeadResult struct {
	Head
	Now time.Time
	Err error
}

// SinceCall reads up to Limit entries of a shard's log after a position.
type SinceCall struct {
	Shard int
	Epoch string
	Seq   int64
	// At is Entry.At of the entry at the position; zero if it is not known.
	At    time.Time
	Limit int
}

// SinceResult is the result of a SinceCall.
type SinceResult struct {
	Head
	Now time.Time
	// Reset reports that the entry after the position cannot be read, because the epoch is another
	// one, the entry was trimmed, or the log ends before the position: the store has lost entries.
	Reset bool
	// Other reports that the entry at the position is not the one of the call's At: the store has
	// gone back, and others have appended entries since.
	Other bool
	// Entries follow the position without a gap. They reach the head unless there are Limit of them.
	Entries []Entry
	Err     error
}

// Entry is an entry of a shard's log: a change of a user's state or, if Login is not nil, the
// winner of a slot.
type Entry struct {
	Seq int64
	// At is the store's time of the step.
	At     time.Time
	UserID string
	// State and Cause are only there if Login is nil.
	State State
	Cause Cause
	Login *Winner
}

// PageResult is a page of a shard's online users.
type PageResult struct {
	Head
	Now   time.Time
	Users []string
}

// Winner is the login that has a slot of a user.
type Winner struct {
	// Slot is the slot under the login policy.
	Slot string
	// Generation orders the logins of a slot, and Order the connections of a login: the higher one
	// is newer.
	Generation, Order int64
	Connection        string
	Node              string
	Platform          Platform
	Device            string
}

// LoginCall enters a connection's login for a slot. It wins unless a higher generation has the
// slot, or the same generation with a higher order. A repeat for the same connection returns the
// same result, unless another login has won since.
type LoginCall struct {
	Shard  int
	UserID string
	// Winner is the login. Its Generation and Order are above 0.
	Winner
	// Epoch is the epoch that the shard must have.
	Epoch    string
	NotAfter time.Time
}

// LoginResult is the result of a LoginCall.
type LoginResult struct {
	Outcome Outcome
	Now     time.Time
	// Won reports whether the connection has the slot. A repeat of a call returns the same result,
	// unless another login has won since.
	Won bool
	// Winner is the login that has the slot after the step.
	Winner Winner
	// Seq is the position of the entry that this step logged because another connection had the
	// slot; 0 if it logged none, as a repeat does.
	Seq int64
	Err error
}

// Beat renews leases.
type Beat struct {
	Node string
	TTL  time.Duration
	// Heard are the peers whose leases the node renews too, because it hears them and they are able
	// to reach the store, or were until recently.
	Heard []Heard
}

// Heard is a peer and how long ago it was heard last.
type Heard struct {
	Node string
	Age  time.Duration
}

// BeatResult is the result of a Beat.
type BeatResult struct {
	Now time.Time
	// Alive are the nodes that have a lease, Dead those whose lease has ended within the last hour.
	// Both are sorted.
	Alive, Dead []string
}

// IsDead reports whether a node is declared dead.
func (r *BeatResult) IsDead(node string) bool {
	return slices.Contains(r.Dead, node)
}
