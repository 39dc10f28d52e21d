package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// chat is a small correct history of one session. Its messages are opened by the generator:
//
//	1 open a   2 complete a   3 open b     4 fail b, abandoned
//	5 open c   6 cancel c     7 open d     8 recall d
//
// Each message has one attempt, of which the first 40 bytes are appended, and two for a. A life is
// shown them all.
type chat struct {
	*testing.T

	h *History
	t *Truth
}

const chatChannel = sessionPrefix + "s"

// chatSeqs are the seqs at which the messages are opened.
var chatSeqs = map[string]int64{"a": 1, "b": 3, "c": 5, "d": 7}

func newChat(t *testing.T) *chat {
	t.Helper()
	c := &chat{T: t, h: new(History), t: &Truth{
		Epoch: epoch, Cache: make(map[string][]CachedValue), Lists: make(map[string][]string), Marks: make(map[string][]string),
	}}
	c.h.Lives = []Life{{ID: 1, Client: "live", Addr: "n1", Channel: chatChannel, End: 200 * sec}}
	c.deliver(Delivery{At: 1, Event: EventState, Copy: unset, Oldest: 1, Recovered: true, Epoch: epoch})
	for _, id := range []string{"a", "b", "c", "d"} {
		c.open(id)
	}
	c.end("a", CloseMessage, StatusComplete, "generator")
	c.end("b", CloseMessage, StatusFailed, "")
	c.end("c", CancelMessage, StatusCancelled, owner)
	c.end("d", Recall, StatusRecalled, owner)
	slices.SortFunc(c.t.Entries, func(a, b Entry) int { return int(a.Seq - b.Seq) })
	for i := range c.h.Deliveries {
		c.h.Deliveries[i].Life = 1
	}
	c.h.Healed, c.h.Waited = 250*sec, 300*sec
	c.list()
	return c
}

// text2 is the text of attempt i of a message.
func text2(id string, i int) string {
	return text1(fmt.Sprintf("%s.%d", id, i)) + strings.Repeat(" ab", 20)
}

// at is when a message was opened.
func at(id string) int64 { return 20 * sec * chatSeqs[id] }

// open adds a message with its attempts. The deliveries show the last of them.
func (c *chat) open(id string) {
	seq := chatSeqs[id]
	e := Entry{
		ID: "id-" + id, MsgID: "msg-" + id, Seq: seq, Channel: chatChannel, From: "generator", Type: "assistant",
		Time: time.Unix(0, at(id)).UTC(), Count: (seq + 1) / 2, ClientMsgID: id, ChangedSeq: seq, Status: StatusOpen,
	}
	c.t.Entries = append(c.t.Entries, e)
	op := Op{
		Client: "generator", Addr: "n1", Kind: Send, Open: true, Begin: at(id), End: at(id) + 1, Channel: chatChannel, From: "generator",
		ClientMsgID: id, MsgID: e.MsgID, Seq: seq, Count: e.Count, Epoch: epoch, TimeMS: e.Time.UnixMilli(), Outcome: chaos.OK,
	}
	c.h.Ops = append(c.h.Ops, op)
	c.h.Copies = append(c.h.Copies, c.copy(&e, seq, StatusOpen, ""))
	c.deliver(Delivery{At: at(id) + sec/10, Event: EventSent, Seq: seq, From: seq, Copy: len(c.h.Copies) - 1})
	attempts := 1
	if id == "a" {
		attempts = 2
	}
	for i := range attempts {
		g := Generation{
			ID: seq*10 + int64(i), Client: "generator", Channel: chatChannel, MsgID: e.MsgID, Begin: op.Begin, End: op.End, Text: text2(id, i),
		}
		c.h.Generations = append(c.h.Generations, g)
		for k := range 4 {
			begin := at(id) + sec*int64(1+i) + sec/10*int64(k)
			c.h.Pieces = append(c.h.Pieces, Piece{
				Generation: g.ID, Addr: "n1", Begin: begin, End: begin + 1, Offset: 10 * k, Size: 10, Outcome: chaos.OK, Length: 10 * (k + 1),
				Status: StatusOpen,
			})
			c.deliver(Delivery{At: begin + 2, Event: EventDelta, Copy: unset, MsgID: e.MsgID, Offset: 10 * k, Text: g.Text[10*k : 10*k+10]})
		}
	}
}

// end ends a message. Without a user it was abandoned.
func (c *chat) end(id string, kind Kind, status Status, user string) {
	m := &c.t.Entries[slices.IndexFunc(c.t.Entries, func(e Entry) bool { return e.ClientMsgID == id })]
	begin := at(id) + 5*sec
	e := Entry{
		ID: "id-end-" + id, MsgID: m.MsgID, Seq: m.Seq + 1, Channel: chatChannel, From: user, Count: m.Count, ClientMsgID: "end-" + id,
		ChangedSeq: m.Seq + 1, TargetSeq: m.Seq, Kind: entryRecall,
	}
	content, event := "", EventRecalled
	for k, s := range closedStatus {
		if s == status {
			e.Kind, event, content = k, EventClosed, text2(id, 0)[:40]
		}
	}
	if id == "a" {
		content = text2(id, 1)
	}
	if user == "" {
		begin = at(id) + int64(openTimeout) + 2*sec
		e.From, e.ClientMsgID = m.From, abandonedPrefix+m.MsgID
	} else {
		c.h.Ops = append(c.h.Ops, Op{
			Client: user, Addr: "n1", Kind: kind, Status: status, Begin: begin, End: begin + 1, Channel: chatChannel, From: user,
			ClientMsgID: e.ClientMsgID, MsgID: m.MsgID, Seq: e.Seq, Epoch: epoch, Outcome: chaos.OK, Content: content,
		})
		if kind != CloseMessage {
			c.h.Ops[len(c.h.Ops)-1].Content = ""
		}
		if kind == Recall {
			c.h.Ops[len(c.h.Ops)-1].Status = 0
		}
	}
	e.Time = time.Unix(0, begin).UTC()
	m.Status, m.Content, m.ChangedSeq = status, content, e.Seq
	c.t.Entries = append(c.t.Entries, e)
	c.h.Copies = append(c.h.Copies, c.copy(m, e.Seq, status.shown(), content))
	c.deliver(Delivery{At: begin + sec/10, Event: event, Seq: e.Seq, From: e.Seq, Copy: len(c.h.Copies) - 1})
}

func (c *chat) copy(e *Entry, changedSeq int64, status Status, content string) Copy {
	return Copy{
		Channel: chatChannel, MsgID: e.MsgID, Seq: e.Seq, Count: e.Count, From: e.From, Type: e.Type, Content: content,
		ClientMsgID: e.ClientMsgID, TimeMS: e.Time.UnixMilli(), Status: status, ChangedSeq: changedSeq,
	}
}

// deliver adds an event of the life.
func (c *chat) deliver(d Delivery) { c.h.Deliveries = append(c.h.Deliveries, d) }

// list sets the cached list to match the log.
func (c *chat) list() {
	add := func(e cachedEntry) {
		data, err := json.Marshal(e)
		if err != nil {
			c.Fatal(err)
		}
		c.t.Lists[chatChannel] = append(c.t.Lists[chatChannel], string(data))
	}
	add(cachedEntry{Epoch: epoch, Seq: int64(len(c.t.Entries)), Count: 4})
	for i := range c.t.Entries {
		if e := &c.t.Entries[i]; e.Kind == entrySend {
			add(cachedEntry{
				Epoch: epoch, Seq: e.Seq, MsgID: e.MsgID, Count: e.Count, From: e.From, Type: e.Type, Content: e.Content,
				ClientMsgID: e.ClientMsgID, Time: e.Time, Status: e.Status, ChangedSeq: e.ChangedSeq,
			})
		}
	}
}

// entry returns the entry at a seq.
func (c *chat) entry(seq int64) *Entry { return &c.t.Entries[seq-1] }

// pieces returns the pieces of an attempt of a message.
func (c *chat) pieces(id string, attempt int) []*Piece {
	var all []*Piece
	for i := range c.h.Pieces {
		if p := &c.h.Pieces[i]; p.Generation == chatSeqs[id]*10+int64(attempt) {
			all = append(all, p)
		}
	}
	return all
}

// delta returns the k-th delta of a message that was delivered.
func (c *chat) delta(id string, k int) *Delivery {
	for i := range c.h.Deliveries {
		if d := &c.h.Deliveries[i]; d.MsgID == "msg-"+id {
			if k == 0 {
				return d
			}
			k--
		}
	}
	c.Fatalf("message %s has no such delta", id)
	return nil
}

// reopen takes the end of the abandoned message b away, as if it were open still.
func (c *chat) reopen() {
	for i := range c.t.Entries {
		if e := &c.t.Entries[i]; e.Seq > 4 {
			c.t.Entries[i].Seq--
			e.ChangedSeq, e.TargetSeq = e.ChangedSeq-1, max(0, e.TargetSeq-1)
		}
	}
	c.t.Entries = slices.Delete(c.t.Entries, 3, 4)
	c.entry(3).Status, c.entry(3).Content, c.entry(3).ChangedSeq = StatusOpen, "", 3
}

func TestCheckPassesARightChat(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *chat){
		"as it is": func(*chat) {},
		"a delta that repeats what came": func(c *chat) {
			d := c.delta("c", 2)
			d.Offset, d.Text = 5, text2("c", 0)[5:30]
		},
		"a piece of which a node had a part": func(c *chat) { c.pieces("c", 0)[3].Offset, c.pieces("c", 0)[3].Size = 20, 20 },
		"an earlier attempt that another node takes": func(c *chat) {
			p := *c.pieces("a", 0)[3]
			p.Addr, p.Begin, p.End = "n2", p.Begin+2*sec, p.End+2*sec
			c.h.Pieces = append(c.h.Pieces, p)
		},
		"an earlier attempt that is refused": func(c *chat) {
			p := *c.pieces("a", 0)[3]
			p.Outcome, p.Code, p.Reason, p.Begin, p.End = chaos.Failed, "failed_precondition", superseded, p.Begin+2*sec, p.End+2*sec
			c.h.Pieces = append(c.h.Pieces, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChat(t)
			change(c)
			for _, v := range Check(c.h, c.t) {
				t.Errorf("reported %s", v)
			}
		})
	}
}

// wrongChats are changes of the chat that break a promise.
var wrongChats = []struct {
	want   chaos.Name
	name   string
	change func(c *chat)
}{
	{PrefixText, "a delta of another text", func(c *chat) { c.delta("c", 1).Text = "xxxxxxxxxx" }},
	{PrefixText, "a delta that was not appended yet", func(c *chat) { c.delta("c", 3).Text = text2("c", 0)[30:45] }},
	{PrefixText, "a delta without the one before", func(c *chat) { c.delta("c", 1).MsgID = "msg-other" }},
	{PrefixText, "a delta of an earlier attempt", func(c *chat) {
		*c.delta("a", 7) = Delivery{Life: 1, At: c.delta("a", 7).At, Event: EventDelta, Copy: unset, MsgID: "msg-a", Text: text2("a", 0)[:20]}
	}},
	{PrefixText, "a mix of two attempts", func(c *chat) { c.delta("a", 7).Text = text2("a", 0)[30:40] + text2("a", 1)[40:50] }},
	{PrefixText, "a delta after the end", func(c *chat) { c.delta("c", 3).At += 20 * sec }},
	{PrefixText, "a node knows another text", func(c *chat) {
		p := c.pieces("c", 0)[2]
		p.Outcome, p.Code = chaos.Failed, "invalid_argument"
	}},
	{WrongResponse, "an answer tells too small a length", func(c *chat) { c.pieces("c", 0)[2].Length = 20 }},
	{WrongResponse, "an answer tells a length that was not appended", func(c *chat) { c.pieces("c", 0)[2].Length = 50 }},
	{WrongResponse, "a piece is refused although what is before it is known", func(c *chat) {
		p := c.pieces("c", 0)[2]
		p.Outcome, p.Code, p.Length = chaos.Failed, "out_of_range", 20
	}},
	{Superseded, "a node takes an earlier attempt after a later one", func(c *chat) {
		p := *c.pieces("a", 0)[3]
		p.Begin, p.End = p.Begin+2*sec, p.End+2*sec
		c.h.Pieces = append(c.h.Pieces, p)
	}},
	{Superseded, "the last attempt is superseded", func(c *chat) {
		p := c.pieces("a", 1)[3]
		p.Outcome, p.Code, p.Reason = chaos.Failed, "failed_precondition", superseded
	}},
	{OpenForEver, "a message is open", func(c *chat) { c.reopen() }},
	{WrongFinal, "a text is not that of the close", func(c *chat) { c.entry(1).Content = text2("a", 0) }},
	{WrongFinal, "a cancelled message has a text that nobody appended", func(c *chat) { c.entry(5).Content = "x" }},
	{WrongFinal, "a cancelled message has a text that was not appended yet", func(c *chat) { c.entry(5).Content = text2("c", 0) }},
	{WrongFinal, "a cancelled message lacks text", func(c *chat) { c.entry(5).Content = text2("c", 0)[:20] }},
	{WrongFinal, "a failed message has a text that nobody appended", func(c *chat) { c.entry(3).Content = "x" }},
	{Unsent, "a message is cancelled that was to be completed", func(c *chat) { c.entry(2).Kind = entryCancel }},
	{Changed, "a message has the status of another close", func(c *chat) { c.entry(3).Status = StatusCancelled }},
	{Abandoned, "a message was abandoned while its text grew", func(c *chat) { c.pieces("b", 0)[3].End += 12 * sec }},
	{DeletedText, "the text of a recalled message lies somewhere", func(c *chat) { c.t.Marks["d.0"] = []string{"Redis x"} }},
	{DeletedText, "a text is shown long after its recall", func(c *chat) { c.delta("d", 3).At += 20 * sec }},
	{Hole, "a stream lacks a close", func(c *chat) {
		i := slices.IndexFunc(c.h.Deliveries, func(d Delivery) bool { return d.Seq == 6 })
		c.h.Deliveries = slices.Delete(c.h.Deliveries, i, i+1)
		c.h.Deliveries[i].From = 7
	}},
	{WrongCopy, "a close is delivered as an edit", func(c *chat) {
		c.h.Deliveries[slices.IndexFunc(c.h.Deliveries, func(d Delivery) bool { return d.Seq == 6 })].Event = EventEdited
	}},
	{WrongList, "the list has a hole", func(c *chat) { c.t.Lists[chatChannel] = slices.Delete(c.t.Lists[chatChannel], 2, 3) }},
	{WrongList, "the list lacks its last message", func(c *chat) { c.t.Lists[chatChannel] = c.t.Lists[chatChannel][:4] }},
	{WrongList, "the list has no state", func(c *chat) { c.t.Lists[chatChannel] = c.t.Lists[chatChannel][1:] }},
	{WrongList, "the list has another text", func(c *chat) {
		l := c.t.Lists[chatChannel]
		l[2] = strings.Replace(l[2], "text", "other", 1)
	}},
	{WrongList, "a message is no message", func(c *chat) { c.t.Lists[chatChannel][2] = "x" }},
	{WrongList, "a message is of another epoch", func(c *chat) {
		l := c.t.Lists[chatChannel]
		l[2] = strings.Replace(l[2], epoch, "e2", 1)
	}},
	{WrongList, "the list is of another epoch", func(c *chat) { c.t.Epoch = "e2" }},
	{WrongList, "the list is too long", func(c *chat) {
		for range maxListed {
			c.t.Lists[chatChannel] = append(c.t.Lists[chatChannel], c.t.Lists[chatChannel][4])
		}
	}},
	{WrongList, "the list says that it ends beyond the log", func(c *chat) {
		l := c.t.Lists[chatChannel]
		l[0] = strings.Replace(l[0], "\"seq\":8", "\"seq\":9", 1)
	}},
	{Behind, "the list ends early", func(c *chat) {
		c.h.Touched = 240 * sec
		l := c.t.Lists[chatChannel]
		l[0] = strings.Replace(l[0], "\"seq\":8", "\"seq\":7", 1)
	}},
}

func TestCheckFindsAWrongChat(t *testing.T) {
	t.Parallel()
	for _, tt := range wrongChats {
		t.Run(fmt.Sprintf("%s: %s", tt.want, tt.name), func(t *testing.T) {
			t.Parallel()
			c := newChat(t)
			tt.change(c)
			found := Check(c.h, c.t)
			if !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == tt.want }) {
				t.Errorf("not found; found %v", found)
			}
		})
	}
}

// newDeletion returns a history with one session that was deleted at 10 s.
func newDeletion() (*History, *Truth, *Deletion) {
	h := &History{Deletions: []Deletion{{
		Channel: goneSession(1), Marks: []string{"x"}, Begin: 9 * sec, End: 10 * sec, Seen: 10*sec + sec/2, Addr: "n1",
		Afters: []After{
			{Addr: "n1", Kind: List, Begin: 12 * sec, End: 12*sec + 1, Outcome: chaos.Failed, Code: "not_found"},
			{Addr: "n2", Kind: Send, Begin: 12 * sec, End: 12*sec + 1, Outcome: chaos.Failed, Code: "failed_precondition"},
		},
	}}}
	h.Healed, h.Waited = 20*sec, 200*sec
	return h, &Truth{Epoch: epoch, Marks: make(map[string][]string)}, &h.Deletions[0]
}

func TestCheckOfDeletions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(h *History, t *Truth, d *Deletion)
		wrong  bool
	}{
		{"as it is", func(*History, *Truth, *Deletion) {}, false},
		{"listed within a second", func(_ *History, _ *Truth, d *Deletion) {
			d.Afters[0].Begin, d.Afters[0].Outcome = 10*sec+sec/2, chaos.OK
		}, false},
		{"listed later", func(_ *History, _ *Truth, d *Deletion) { d.Afters[0].Outcome = chaos.OK }, true},
		{"a message taken", func(_ *History, _ *Truth, d *Deletion) { d.Afters[1].Outcome = chaos.OK }, true},
		{"a text on a stream", func(_ *History, _ *Truth, d *Deletion) { d.Seen = 15 * sec }, true},
		{"a text in the store", func(_ *History, t *Truth, _ *Deletion) { t.Marks["x"] = []string{"MongoDB m"} }, true},
		{"a text in Redis", func(_ *History, t *Truth, _ *Deletion) { t.Marks["x"] = []string{"Redis k"} }, true},
		{"a text in Redis, soon after", func(h *History, t *Truth, _ *Deletion) {
			h.Waited, t.Marks["x"] = 40*sec, []string{"Redis k"}
		}, true},
		{"a text in the store, soon after", func(h *History, t *Truth, _ *Deletion) {
			h.Waited, t.Marks["x"] = 40*sec, []string{"MongoDB m"}
		}, false},
		{"a text that an old state of Redis has", func(h *History, t *Truth, d *Deletion) {
			h.Faults = []chaos.Fault{{Name: string(chaos.RedisPast), Begin: d.End + sec, End: d.End + 2*sec}}
			t.Marks["x"] = []string{"Redis k"}
		}, false},
		{"a text that an older state of Redis has not", func(h *History, t *Truth, d *Deletion) {
			h.Faults = []chaos.Fault{{Name: string(chaos.RedisPast), Begin: sec, End: d.Begin - sec}}
			t.Marks["x"] = []string{"Redis k"}
		}, true},
		{"not acknowledged", func(_ *History, t *Truth, d *Deletion) { d.End, t.Marks["x"] = 0, []string{"Redis k"} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, truth, d := newDeletion()
			tt.change(h, truth, d)
			found := Check(h, truth)
			if got := slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == DeletedText }); got != tt.wrong {
				t.Errorf("found %v", found)
			}
		})
	}
}
