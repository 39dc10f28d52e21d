package messages

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// Kind is the method that an Op calls.
type Kind string

// The kinds.
const (
	Send          Kind = "send" // alone or in a batch
	Edit          Kind = "edit"
	Recall        Kind = "recall"
	CloseMessage  Kind = "close_message"  // of an open message
	CancelMessage Kind = "cancel_message" // of an open message, with the text that was streamed
	List          Kind = "list"
	Get           Kind = "get"
	MarkRead      Kind = "mark_read"
	Update        Kind = "update" // channels of a live stream
	Create        Kind = "create"
	Add           Kind = "add" // members
	Remove        Kind = "remove"
)

// unset stands for an absent position in a log, or an absent index in History.Copies.
const unset = -1

// Op is one call and its result. Times are nanoseconds since the run began, by the monotonic clock.
type Op struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Addr is the node's address, or several addresses separated by commas for a client that moves.
	Addr    string        `json:"addr,omitempty"`
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	// Code and Err are set if the call was not OK.
	Code string `json:"code,omitempty"`
	Err  string `json:"err,omitempty"`
	// Reason is the error's machine-readable reason. Only calls of guests and of the member
	// manager set it.
	Reason string `json:"reason,omitempty"`
	// Limit is the call's timeout in nanoseconds, or 0 if it is not checked.
	Limit int64 `json:"limit,omitempty"`

	Channel string `json:"channel,omitempty"`
	// Batch identifies the request of several sends, and Item is the index of this send in it.
	// Batch is 0 for a single send.
	Batch int64 `json:"batch,omitempty"`
	Item  int   `json:"item,omitempty"`

	// The fields of the request. MsgID is the target of an edit, a recall or a get. For a send it
	// is the id in the answer.
	From        string            `json:"from,omitempty"`
	ClientMsgID string            `json:"cmid,omitempty"`
	MsgID       string            `json:"msg_id,omitempty"`
	Content     string            `json:"content,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	// Open is set for a send that opens a message, and Status is what a close or cancellation makes
	// of it.
	Open   bool   `json:"open,omitempty"`
	Status Status `json:"status,omitempty"`
	// Repeat is set if the same ClientMsgID was requested before this Op began.
	Repeat bool  `json:"repeat,omitempty"`
	After  int64 `json:"after,omitempty"`
	Before int64 `json:"before,omitempty"`
	MinSeq int64 `json:"min_seq,omitempty"`
	// Final is set for the last send to a channel, after all faults were mended, and for the reads
	// after all of these sends. Such a call must succeed.
	Final bool `json:"final,omitempty"`
	// Users are the users to add or remove.
	Users []string `json:"users,omitempty"`

	// The fields of the answer. For MarkRead, Seq is the read cursor and Count is the number of
	// unread messages.
	Seq       int64  `json:"seq,omitempty"`
	Count     int64  `json:"count,omitempty"`
	TimeMS    int64  `json:"time_ms,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Epoch     string `json:"epoch,omitempty"`
	Head      int64  `json:"head,omitempty"`
	More      bool   `json:"more,omitempty"`
	// Copies are the indexes in History.Copies of the messages in the answer, in its order.
	Copies []int `json:"copies,omitempty"`
}

// write reports whether the call may append to a log.
func (k Kind) write() bool {
	return k == Send || k == Edit || k == Recall || k == CloseMessage || k == CancelMessage
}

// Copy is a message as a client was shown it.
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

// Status is the status of a message, as the store numbers it.
type Status int

// The statuses.
const (
	StatusSent     Status = 0
	StatusEdited   Status = 1
	StatusRecalled Status = 2
	// StatusOpen is the status of a message of a session whose text is being generated. The last three
	// are the statuses after a close. Clients see StatusComplete as StatusSent.
	StatusOpen      Status = -1
	StatusComplete  Status = 3
	StatusCancelled Status = 4
	StatusFailed    Status = 5
	// statusUnknown is one that this package does not know.
	statusUnknown Status = -100
)

// shown returns the status that clients see.
func (s Status) shown() Status {
	if s == StatusComplete {
		return StatusSent
	}
	return s
}

// Life is the time during which a subscriber follows one channel: on one stream, or with the SDK,
// which reconnects on its own, on several.
type Life struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Addr is the address of the stream's node, or several separated by commas if the node is
	// unknown.
	Addr    string `json:"addr,omitempty"`
	Channel string `json:"channel"`
	// User is the stream's user. It is set only for guests.
	User string `json:"user,omitempty"`
	// Begin is when the stream, or the channel on it, was first requested.
	Begin int64 `json:"begin"`
	// After is the requested position, or unset for live events only.
	After int64 `json:"after"`
	Final bool  `json:"final,omitempty"`
	// Slow is set if the client stops reading now and then, so that it gets events late.
	Slow bool `json:"slow,omitempty"`
	// SDK is set if the SDK received the events. It does not pass on those of EventPassed.
	SDK bool `json:"sdk,omitempty"`
	// End is when the subscriber stopped following the channel on that stream, or 0 if it followed
	// it until the run's end.
	End int64 `json:"end,omitempty"`
}

// Event is the type of a Delivery.
type Event string

// The events.
const (
	EventState    Event = "state"
	EventSent     Event = "sent"
	EventEdited   Event = "edited"
	EventRecalled Event = "recalled"
	EventClosed   Event = "closed"
	// EventDelta is a piece of the text of an open message.
	EventDelta Event = "delta"
	EventGap   Event = "gap"
	EventLost  Event = "lost"
	// EventPassed covers entries that have no event of their own.
	EventPassed Event = "passed"
)

// Delivery is one event that a subscriber received.
type Delivery struct {
	Life  int64 `json:"life"`
	At    int64 `json:"at"`
	Event Event `json:"event"`
	Seq   int64 `json:"seq"`
	// From is the first entry that the event covers, Seq the last. From is 0 if the event is not an
	// entry.
	From int64 `json:"from,omitempty"`
	// Copy is the index of the event's message in History.Copies, or unset if it has no message.
	Copy int `json:"copy"`
	// Head, Oldest, Count, Expired and Recovered are set for a state only. Epoch is set for a
	// state, and may be set for a gap or a loss.
	Head      int64  `json:"head,omitempty"`
	Oldest    int64  `json:"oldest,omitempty"`
	Expired   int64  `json:"expired,omitempty"`
	Count     int64  `json:"count,omitempty"`
	Recovered bool   `json:"recovered,omitempty"`
	Epoch     string `json:"epoch,omitempty"`
	// Note describes a gap.
	Note string `json:"note,omitempty"`
	// MsgID, Offset and Text are set for a delta only.
	MsgID  string `json:"msg_id,omitempty"`
	Offset int    `json:"offset,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Late is a subscriber that did not catch up with a log in time after the last fault was mended.
type Late struct {
	Client  string `json:"client"`
	Channel string `json:"channel"`
	At      int64  `json:"at"`
	Head    int64  `json:"head"`
	// Seq is the subscriber's position in the log, Head the log's end. Since names the event from
	// which the time Limit counts.
	Seq   int64         `json:"seq"`
	Since string        `json:"since"`
	Limit time.Duration `json:"limit"`
}

// History is every call, delivery and fault of a run.
type History struct {
	chaos.History

	Ops        []Op
	Copies     []Copy
	Lives      []Life
	Deliveries []Delivery
	Lates      []Late
	Mines      []channelList
	Trims      []Trim
	Gates      []GateCall
	Logins     []LoginCall
	Usages     []Usage
	Costs      []Cost
	// Generations are in the order of their attempts.
	Generations []Generation
	Pieces      []Piece
	Deletions   []Deletion
	// Touched is when every channel had received its last message. Ended is when the run stopped
	// waiting for the subscribers. Both are 0 if the run ended before.
	Touched, Ended int64
	// Waited is when the run stopped waiting for open messages to be closed, or 0.
	Waited int64
}

// line is one line of a history's file; exactly one field is set.
type line struct {
	chaos.Line

	Op       *Op          `json:"op,omitempty"`
	Copy     *Copy        `json:"copy,omitempty"`
	Life     *Life        `json:"life,omitempty"`
	Delivery *Delivery    `json:"delivery,omitempty"`
	Late     *Late        `json:"late,omitempty"`
	Mine     *channelList `json:"mine,omitempty"`
	Trim     *Trim        `json:"trim,omitempty"`
	Gate     *GateCall    `json:"gate,omitempty"`
	Login    *LoginCall   `json:"login,omitempty"`
	Usage    *Usage       `json:"usage,omitempty"`
	Cost     *Cost        `json:"cost,omitempty"`

	Generation *Generation `json:"generation,omitempty"`
	Piece      *Piece      `json:"piece,omitempty"`
	Deletion   *Deletion   `json:"deletion,omitempty"`
}

// ReadHistory reads a history that a Recorder wrote. It ignores a truncated last line.
func ReadHistory(path string) (*History, error) {
	b := newBuilder()
	if err := chaos.ReadJournal(path, b.add); err != nil {
		return nil, err
	}
	return b.done(), nil
}

// builder builds a history from lines.
type builder struct {
	h     History
	lives map[int64]int // by id
}

func newBuilder() *builder { return &builder{lives: make(map[int64]int)} }

func (b *builder) add(l *line) {
	h := &b.h
	h.Add(&l.Line)
	switch {
	case l.Op != nil:
		h.Ops = append(h.Ops, *l.Op)
	case l.Copy != nil:
		h.Copies = append(h.Copies, *l.Copy)
	case l.Life != nil:
		if i, ok := b.lives[l.Life.ID]; ok {
			h.Lives[i] = *l.Life
			return
		}
		b.lives[l.Life.ID] = len(h.Lives)
		h.Lives = append(h.Lives, *l.Life)
	case l.Delivery != nil:
		h.Deliveries = append(h.Deliveries, *l.Delivery)
	case l.Late != nil:
		h.Lates = append(h.Lates, *l.Late)
	case l.Mine != nil:
		h.Mines = append(h.Mines, *l.Mine)
	case l.Trim != nil:
		h.Trims = append(h.Trims, *l.Trim)
	case l.Gate != nil:
		h.Gates = append(h.Gates, *l.Gate)
	case l.Login != nil:
		h.Logins = append(h.Logins, *l.Login)
	case l.Usage != nil:
		h.Usages = append(h.Usages, *l.Usage)
	case l.Cost != nil:
		h.Costs = append(h.Costs, *l.Cost)
	case l.Generation != nil:
		h.Generations = append(h.Generations, *l.Generation)
	case l.Piece != nil:
		h.Pieces = append(h.Pieces, *l.Piece)
	case l.Deletion != nil:
		h.Deletions = append(h.Deletions, *l.Deletion)
	}
	if at, ok := l.Marks[markTouched]; ok {
		h.Touched = at
	}
	if at, ok := l.Marks[markEnded]; ok {
		h.Ended = at
	}
	if at, ok := l.Marks[markWaited]; ok {
		h.Waited = at
	}
}

// done returns the history, sorted.
func (b *builder) done() *History {
	h := b.h
	h.Sort()
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return cmp.Compare(a.ID, b.ID) })
	return &h
}
