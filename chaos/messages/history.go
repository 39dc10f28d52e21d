package messages

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/chaos"
)

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

// unset stands for a position that was not given.
const unset = -1

// Op is one call and what came of it. Times are nanoseconds since the run began, by the monotonic clock.
type Op struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Addr is the node, or several with commas between them for a client that moves.
	Addr    string        `json:"addr,omitempty"`
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
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
	chaos.History

	Ops        []Op
	Copies     []Copy
	Lives      []Life
	Deliveries []Delivery
	Lates      []Late
	Mines      []mine
	// Touched is when every channel had got its last message, Ended when the subscribers were given up on.
	Touched, Ended int64
}

// line is one line of a history's file; exactly one field is set.
type line struct {
	chaos.Line

	Op       *Op       `json:"op,omitempty"`
	Copy     *Copy     `json:"copy,omitempty"`
	Life     *Life     `json:"life,omitempty"`
	Delivery *Delivery `json:"delivery,omitempty"`
	Late     *Late     `json:"late,omitempty"`
	Mine     *mine     `json:"mine,omitempty"`
}

// ReadHistory reads a history that a Recorder wrote. It ignores a last line that is cut off.
func ReadHistory(path string) (*History, error) {
	b := newBuilder()
	if err := chaos.ReadJournal(path, b.add); err != nil {
		return nil, err
	}
	return b.done(), nil
}

// builder makes a history of lines.
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
	}
	if at, ok := l.Marks[markTouched]; ok {
		h.Touched = at
	}
	if at, ok := l.Marks[markEnded]; ok {
		h.Ended = at
	}
}

// done returns the history, ordered.
func (b *builder) done() *History {
	h := b.h
	h.Sort()
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return cmp.Compare(a.ID, b.ID) })
	return &h
}
