package consume

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Peers carries what the Services of a fleet's nodes tell each other. The front node of a session is
// the one that its latest stream is or was on; the holder of a partition is the node that has the
// group's lease of it. Safe for concurrent use.
//
// Every call may be repeated. It fails with STORE_UNAVAILABLE if the node cannot be reached, so that
// nothing was done, and with OUTCOME_UNKNOWN if the node may have executed it.
type Peers interface { //nolint:interfacebloat // one adapter implements it, and each method is one message
	// Settle and Extend ask the holder of the deliveries' partitions. They return a result for each
	// delivery: nil or a fault.
	Settle(ctx context.Context, node string, r SettleRequest) ([]error, error)
	Extend(ctx context.Context, node string, r ExtendRequest) ([]error, error)
	// Report tells a holder about the sessions of this node.
	Report(ctx context.Context, node string, r Report) (ReportAnswer, error)
	// Take asks a holder for messages. It returns how many each slot will get with Deliver.
	Take(ctx context.Context, node string, r TakeRequest) ([]int, error)
	// Deliver hands deliveries to the front node of their sessions. It returns those that the node
	// cannot hand out.
	Deliver(ctx context.Context, node string, r DeliverRequest) (refused []Token, err error)
	// Ended tells a front node that deliveries of its sessions ended. The next Report repeats it.
	Ended(ctx context.Context, node string, r EndedNotice) error
	// Cancel asks the holder of a partition to cancel messages. It returns a result for each: nil or a
	// fault.
	Cancel(ctx context.Context, node string, r CancelRequest) ([]error, error)
	// Retry asks the holder of a partition to make retries due now. It returns how many were.
	Retry(ctx context.Context, node string, r RetryRequest) (int, error)
	// Session asks all other nodes; the front node of the session executes the request. Found is false
	// if none of those that answered is.
	Session(ctx context.Context, r SessionRequest) (a SessionAnswer, found bool, err error)
	// Sessions returns the sessions of a group on all other nodes, and the nodes that did not answer.
	Sessions(ctx context.Context, topic, group string) (sessions []qlog.SessionInfo, missing []string, err error)
	// AnnounceHolder tells all nodes who holds a lease, and OfferSpare that a holder has more ready
	// messages than idle handlers. They may be lost.
	AnnounceHolder(n HolderNotice) error
	OfferSpare(n SpareNotice) error
	// Connected reports whether the other nodes can be reached at present.
	Connected() bool
}

// SettleRequest settles deliveries of a session. Node is the caller.
type SettleRequest struct {
	Node, Group, Session string
	Items                []Settlement
}

// ExtendRequest restarts the ack timeouts of deliveries of a session, with Begun because handlers
// began them. AckTimeout is the new timeout, 0 that of the session or the group.
type ExtendRequest struct {
	Node, Group, Session string
	Tokens               []Token
	AckTimeout           time.Duration
	Begun                bool
}

// SessionProfile is what holders know of a session.
type SessionProfile struct {
	ID, Consumer string
	// Resumes is how many streams the session had before the latest one. A node with a lower number
	// than another's is not the front node any more.
	Resumes      int64
	ReportsBegun bool
	// AckTimeout is the session's own, 0 for the group's. Grace is how long it keeps its deliveries
	// without contact.
	AckTimeout, Grace time.Duration
	// Loose: it is one call of Receive, whose deliveries do not need contact.
	Loose bool
}

// HeldDelivery is a delivery that a consumer has.
type HeldDelivery struct {
	Token Token
	Begun bool
}

// Report is what the front node of sessions tells a holder: that it has contact with them, and what
// they have of the holder's partitions. It is repeated while they have something.
type Report struct {
	Node, Group string
	Sessions    []SessionReport
	// Complete are leases for which Sessions has all that sessions of the node have.
	Complete []Lease
}

// Lease names a lease of a group.
type Lease struct {
	Topic     string
	Partition int
	Epoch     int64
}

// SessionReport is one session in a Report.
type SessionReport struct {
	SessionProfile

	State SessionState
	// ContactAge is how long ago the node last had contact with the consumer.
	ContactAge time.Duration
	// Deliveries are what the consumer has of the holder's partitions: of each partition that is
	// among them, everything.
	Deliveries []HeldDelivery
}

// ReportAnswer is the answer to a Report.
type ReportAnswer struct {
	// Sessions are in the order of the report.
	Sessions []SessionReportAnswer
}

// SessionReportAnswer answers one session of a Report. It confirms the contact. What the session no
// longer has follows by Ended.
type SessionReportAnswer struct {
	// Superseded: a later stream on another node has the session.
	Superseded bool
	// Unknown are deliveries whose partition the node does not hold at present.
	Unknown []Token
}

// TakeRequest asks for messages of a topic.
type TakeRequest struct {
	Node, Group, Topic string
	Slots              []Slot
}

// Slot is the room that one session has: N messages of up to Bytes together, or one larger one.
type Slot struct {
	SessionProfile

	N     int
	Bytes int64
	// Suspect: the session has a suspect, so it gets no other.
	Suspect bool
}

// DeliverRequest hands deliveries to sessions.
type DeliverRequest struct {
	Node, Group string
	Deliveries  []RemoteDelivery
}

// RemoteDelivery is a delivery to a session of another node, under the epoch of the lease.
type RemoteDelivery struct {
	Delivery

	Session string
	Epoch   int64
}

// EndedNotice tells that deliveries ended.
type EndedNotice struct {
	Group      string
	Deliveries []EndedDelivery
}

// EndedDelivery is a delivery that ended. Cause is 0 if it was settled or never reached the
// consumer.
type EndedDelivery struct {
	Session string
	Token   Token
	Cause   Cause
}

// CancelRequest cancels messages in a group.
type CancelRequest struct {
	Group, Topic string
	Partition    int
	Items        []Cancellation
}

// Cancellation names a message by its ID, its key and its unique key.
type Cancellation struct {
	ID             qlog.ID
	Key, UniqueKey string
}

// RetryRequest makes retries due now.
type RetryRequest struct {
	Group, Topic string
	Partition    int
	IDs          []qlog.ID
}

// SessionCall is what a SessionRequest asks for.
type SessionCall uint8

// The calls about a session that only its front node can execute.
const (
	// ExtendAll restarts the ack timeouts of all its deliveries.
	ExtendAll SessionCall = iota + 1
	// UpdateLimits changes its limits and the expiry of its stream.
	UpdateLimits
	// LeaveGroup ends it gracefully.
	LeaveGroup
	// Supersede ends its stream, because another node resumed it with the number Resumes.
	Supersede
)

// SessionRequest is a call about a session.
type SessionRequest struct {
	Group, Session string
	Call           SessionCall
	AckTimeout     time.Duration
	Update         Update
	Resumes        int64
}

// SessionAnswer is the answer of the session's front node.
type SessionAnswer struct {
	// Expires is when the session's stream ends, zero for never or if there is none.
	Expires time.Time
	// Err is nil or a fault.
	Err error
}

// HolderNotice says who holds a lease. Node is empty if it was released.
type HolderNotice struct {
	Lease

	Group, Node string
}

// SpareNotice offers Count messages of a topic to other nodes.
type SpareNotice struct {
	Group, Topic, Node string
	Count              int
}

// PeerHandler executes what Peers carries, on the called node; *Service does.
type PeerHandler interface { //nolint:interfacebloat // as Peers
	HandleSettle(ctx context.Context, r SettleRequest) ([]error, error)
	HandleExtend(ctx context.Context, r ExtendRequest) ([]error, error)
	HandleReport(ctx context.Context, r Report) (ReportAnswer, error)
	HandleTake(ctx context.Context, r TakeRequest) ([]int, error)
	HandleDeliver(ctx context.Context, r DeliverRequest) ([]Token, error)
	HandleEnded(r EndedNotice)
	HandleCancel(ctx context.Context, r CancelRequest) ([]error, error)
	HandleRetry(ctx context.Context, r RetryRequest) (int, error)
	// HandleSession reports false if the node is not the front node of the session.
	HandleSession(ctx context.Context, r SessionRequest) (SessionAnswer, bool)
	HandleSessions(ctx context.Context, topic, group string) []qlog.SessionInfo
	HandleHolder(n HolderNotice)
	HandleSpare(n SpareNotice)
}
