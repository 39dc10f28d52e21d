package chaos

// Kind says what an Op asked for.
type Kind string

// The kinds.
const (
	Send     Kind = "send" // alone or in a batch
	Edit     Kind = "edit"
	Recall   Kind = "recall"
	List     Kind = "list"
	Get      Kind = "get"
	MarkRead Kind = "mark_read"
	Update   Kind = "update" // channels of a live stream
	Create   Kind = "create"
	Add      Kind = "add" // members
	Remove   Kind = "remove"
)

// Outcome says how an Op ended.
type Outcome string

// The outcomes.
const (
	// OK is an answer.
	OK Outcome = "ok"
	// Failed is an error that says for certain that nothing was changed.
	Failed Outcome = "failed"
	// Unknown is everything else: a time limit, a lost connection, an `unavailable`. A write may be stored or not.
	Unknown Outcome = "unknown"
)

// unset stands for a position that was not given.
const unset = -1

// Op is one call and what came of it. Times are nanoseconds since the run began, by the monotonic clock.
type Op struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Addr is the node, or several with commas between them for a client that moves.
	Addr    string  `json:"addr,omitempty"`
	Kind    Kind    `json:"kind"`
	Begin   int64   `json:"begin"`
	End     int64   `json:"end"`
	Outcome Outcome `json:"outcome"`
	// Code and Err are those of a call that was not OK.
	Code string `json:"code,omitempty"`
	Err  string `json:"err,omitempty"`
	// Reason is the error's machine-readable one, where it is of interest.
	Reason string `json:"reason,omitempty"`
	// Limit is within which time the call must end.
	Limit int64 `json:"limit,omitempty"`

	Channel string `json:"channel,omitempty"`
	// Batch is common to the sends of one request; Item is the place in it.
	Batch int64 `json:"batch,omitempty"`
	Item  int   `json:"item,omitempty"`

	// What was asked. MsgID is an edit's, a recall's or a get's target, and a send's answer.
	From        string            `json:"from,omitempty"`
	ClientMsgID string            `json:"cmid,omitempty"`
	MsgID       string            `json:"msg_id,omitempty"`
	Content     string            `json:"content,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	// Repeat says that the same ClientMsgID was asked for before this Op began.
	Repeat bool  `json:"repeat,omitempty"`
	After  int64 `json:"after,omitempty"`
	Before int64 `json:"before,omitempty"`
	MinSeq int64 `json:"min_seq,omitempty"`
	// Final says that everything was healed and every write done before this read began.
	Final bool `json:"final,omitempty"`
	// Users are those whom an add or a remove is about.
	Users []string `json:"users,omitempty"`

	// What was answered.
	Seq       int64  `json:"seq,omitempty"`
	Count     int64  `json:"count,omitempty"`
	TimeMS    int64  `json:"time_ms,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Epoch     string `json:"epoch,omitempty"`
	Head      int64  `json:"head,omitempty"`
	More      bool   `json:"more,omitempty"`
	// Copies index the history's copies, in the order of the answer.
	Copies []int `json:"copies,omitempty"`
}

// write reports whether the call may append to a log.
func (k Kind) write() bool { return k == Send || k == Edit || k == Recall }

// Copy is a message as somebody was shown it.
type Copy struct {
	Channel     string            `json:"channel"`
	MsgID       string            `json:"msg_id"`
	Seq         int64             `json:"seq"`
	Count       int64             `json:"count"`
	From        string            `json:"from"`
	Type        string            `json:"type"`
	Content     string            `json:"content"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	ClientMsgID string            `json:"cmid"`
	TimeMS      int64             `json:"time_ms"`
	Status      Status            `json:"status"`
	ChangedSeq  int64             `json:"changed_seq"`
}

// Status says what has become of a message, as the store numbers it.
type Status int

// The statuses.
const (
	StatusSent     Status = 0
	StatusEdited   Status = 1
	StatusRecalled Status = 2
)

// Life is a channel's time with one subscriber: on one stream, or with the SDK, which mends streams itself, on several.
type Life struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Addr is the stream's node; several with commas between them where it is not known which.
	Addr    string `json:"addr,omitempty"`
	Channel string `json:"channel"`
	// User is whose stream it is, where that matters.
	User string `json:"user,omitempty"`
	// Begin is when the stream, or the channel on it, was first asked for.
	Begin int64 `json:"begin"`
	// After is the position that was asked for; unset for live only.
	After int64 `json:"after"`
	Final bool  `json:"final,omitempty"`
	// End is when the life ended on purpose, by the subscriber; 0 if it lasted to the run's end.
	End int64 `json:"end,omitempty"`
}

// Event says what a Delivery told.
type Event string

// The events.
const (
	EventState    Event = "state"
	EventSent     Event = "sent"
	EventEdited   Event = "edited"
	EventRecalled Event = "recalled"
	EventGap      Event = "gap"
	EventLost     Event = "lost"
)

// Delivery is one event that a subscriber was given.
type Delivery struct {
	Life  int64 `json:"life"`
	At    int64 `json:"at"`
	Event Event `json:"event"`
	Seq   int64 `json:"seq"`
	// From is the first entry that the event covers; Seq is the last. 0 for what is no entry.
	From int64 `json:"from,omitempty"`
	// Copy indexes the history's copies, from 0; unset for what carries no message.
	Copy int `json:"copy"`
	// Head, Oldest, Count, Expired, Recovered and Epoch are a state's.
	Head      int64  `json:"head,omitempty"`
	Oldest    int64  `json:"oldest,omitempty"`
	Expired   int64  `json:"expired,omitempty"`
	Count     int64  `json:"count,omitempty"`
	Recovered bool   `json:"recovered,omitempty"`
	Epoch     string `json:"epoch,omitempty"`
	// Note says more of a gap.
	Note string `json:"note,omitempty"`
}

// Fault is something that was broken, and mended at End.
type Fault struct {
	Name string `json:"name"`
	// Target is what was hit: a node's address, a server's name.
	Target string `json:"target"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
	// OpenWrites and OpenReads are the calls under way as it began. A fault that met none tested little.
	OpenWrites int `json:"open_writes"`
	OpenReads  int `json:"open_reads"`
	// Holds says that the target may have held back what it had, and delivered it afterwards: a process that was stopped,
	// a link that was stalled.
	Holds bool   `json:"holds,omitempty"`
	Err   string `json:"err,omitempty"`
}

// Exit is a node that ended without being told to.
type Exit struct {
	Node string `json:"node"`
	At   int64  `json:"at"`
	Log  string `json:"log"`
}

// Late is a subscriber that was not level with a log in time, though nothing was broken any more.
type Late struct {
	Client  string `json:"client"`
	Channel string `json:"channel"`
	At      int64  `json:"at"`
	Head    int64  `json:"head"`
	// Seq is where the subscriber was, Since what it had the time from.
	Seq   int64  `json:"seq"`
	Since string `json:"since"`
}

// History is everything that was asked, answered and broken in a run.
type History struct {
	Ops        []Op
	Copies     []Copy
	Lives      []Life
	Deliveries []Delivery
	Faults     []Fault
	Exits      []Exit
	Lates      []Late
	Mines      []mine
	// Began is when the run did, in nanoseconds since 1970.
	Began int64
	// Healed is when the last fault was mended, Touched when every channel had got its last message, Ended when the
	// subscribers were given up on.
	Healed, Touched, Ended int64
}
