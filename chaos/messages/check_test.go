package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sec = int64(time.Second)

// story is a small correct history of one channel:
//
//	1 send a   2 send b   3 edit a   4 send c   5 recall b   6 send last
//
// A write begins every 2 s and is answered after 0.1 s.
type story struct {
	*testing.T

	h *History
	t *Truth
}

const channel = "c"

var epoch = "e1"

func newStory(t *testing.T) *story {
	t.Helper()
	return newStoryOf(t, "a")
}

// newStoryOf returns the story with an edit of message a or b at 3. The recall at 5 replaces an
// edit of b.
func newStoryOf(t *testing.T, edited string) *story {
	t.Helper()
	s := &story{T: t, h: new(History), t: &Truth{
		Epoch: epoch, Cache: make(map[string][]CachedValue), Marks: make(map[string][]string),
	}}
	s.write(Send, "a", "", 1)
	s.write(Send, "b", "", 2)
	s.write(Edit, "a2", "msg-"+edited, 3)
	s.write(Send, "c", "", 4)
	s.write(Recall, "b2", "msg-b", 5)
	s.write(Send, "last", "", 6)
	s.publish()
	s.h.Healed, s.h.Touched, s.h.Ended = 12*sec, 13*sec, 14*sec
	s.h.Usages = []Usage{{Node: "n1", Heap: heapLimit}}
	s.h.Costs = []Cost{{Engine: rig.EngineMongo, RoundTrips: 6}}
	if edited == "a" {
		s.entry(1).Content, s.entry(1).Status, s.entry(1).ChangedSeq = text1("a2"), StatusEdited, 3
	}
	s.entry(3).Content = "" // applied
	b := s.entry(2)
	b.Content, b.Metadata, b.Digest, b.Status, b.ChangedSeq = "", nil, nil, StatusRecalled, 5
	s.cache()
	s.page("reader", 13*sec, 0, unset, false, 1, 2, 4, 6)
	s.page("reader", 13*sec, unset, unset, true, 6, 4)
	s.op(Op{Client: "reader", Kind: Get, Begin: 13 * sec, Channel: channel, MsgID: "msg-b", Copies: []int{s.now(2)}})
	s.life("early", 0, 0)
	for seq := int64(1); seq <= 6; seq++ {
		s.deliver(1, 2*seq*sec+sec/5, seq)
	}
	s.life("late", 13*sec, 0)
	for seq := int64(1); seq <= 6; seq++ {
		s.deliver(2, 13*sec+seq, seq)
	}
	s.signOut()
	return s
}

func text1(name string) string { return markOf(name) + " text" }

// write adds an entry and the op that requested it.
func (s *story) write(kind Kind, id, target string, seq int64) {
	count := int64(0)
	for _, e := range s.t.Entries {
		if e.Kind == entrySend {
			count++
		}
	}
	at := time.UnixMilli(1000 * seq).UTC()
	e := Entry{
		ID: "id-" + id, MsgID: target, Seq: seq, Channel: channel, From: "author", Time: at, Count: count, ClientMsgID: id,
		ChangedSeq: seq, Digest: []byte{1},
	}
	op := Op{
		Client: "writer", Kind: kind, Begin: 2 * seq * sec, End: 2*seq*sec + sec/10, Channel: channel, From: "author", ClientMsgID: id,
		MsgID: target, Seq: seq, Epoch: epoch, TimeMS: at.UnixMilli(),
	}
	switch kind {
	case Send:
		e.MsgID, e.Type, e.Content, e.Count = "msg-"+id, "text", text1(id), count+1
		e.Metadata = map[string]string{"k": id}
		op.MsgID, op.Content, op.Metadata, op.Count = e.MsgID, e.Content, e.Metadata, e.Count
	case Edit:
		e.Kind, e.Content, op.Content = entryEdit, text1(id), text1(id)
	default:
		e.Kind, e.Digest = entryRecall, nil
	}
	for i := range s.t.Entries {
		if s.t.Entries[i].MsgID == target && s.t.Entries[i].Kind == entrySend {
			e.TargetSeq = s.t.Entries[i].Seq
		}
	}
	s.t.Entries = append(s.t.Entries, e)
	s.op(op)
}

func (s *story) op(op Op) *Op {
	op.ID = int64(len(s.h.Ops)) + 1
	if op.Outcome == "" {
		op.Outcome = chaos.OK
	}
	if op.End == 0 {
		op.End = op.Begin + sec/100
	}
	if op.After == 0 && op.Kind != List {
		op.After, op.Before = unset, unset
	}
	s.h.Ops = append(s.h.Ops, op)
	return &s.h.Ops[len(s.h.Ops)-1]
}

func (s *story) entry(seq int64) *Entry { return &s.t.Entries[seq-1] }

// asked returns the op of a write.
func (s *story) asked(seq int64) *Op { return &s.h.Ops[seq-1] }

// copy adds a copy of a message.
func (s *story) copy(seq, changedSeq int64, status Status, content string, metadata map[string]string) int {
	e := s.entry(seq)
	s.h.Copies = append(s.h.Copies, Copy{
		Channel: channel, MsgID: e.MsgID, Seq: seq, Count: e.Count, From: e.From, Type: e.Type, Content: content,
		Metadata: metadata, ClientMsgID: e.ClientMsgID, TimeMS: e.Time.UnixMilli(), Status: status, ChangedSeq: changedSeq,
	})
	return len(s.h.Copies) - 1
}

// now adds a copy of the message in its final state. first adds a copy of it as it was sent.
func (s *story) now(seq int64) int {
	e := s.entry(seq)
	return s.copy(seq, e.ChangedSeq, e.Status, e.Content, e.Metadata)
}

func (s *story) first(seq int64) int {
	op := s.asked(seq)
	return s.copy(seq, seq, StatusSent, op.Content, op.Metadata)
}

func (s *story) page(client string, begin, after, before int64, more bool, seqs ...int64) *Op {
	op := Op{
		Client: client, Kind: List, Begin: begin, Channel: channel, After: after, Before: before, More: more, Head: 6, Epoch: epoch,
	}
	for _, seq := range seqs {
		op.Copies = append(op.Copies, s.now(seq))
	}
	return s.op(op)
}

func (s *story) life(client string, begin, after int64) *Life {
	s.h.Lives = append(s.h.Lives, Life{
		ID: int64(len(s.h.Lives)) + 1, Client: client, Addr: "n1", Channel: channel, Begin: begin, After: after,
	})
	l := &s.h.Lives[len(s.h.Lives)-1]
	d := Delivery{Life: l.ID, At: begin, Event: EventState, Copy: unset, Seq: after, Oldest: 1, Recovered: true, Epoch: epoch}
	if begin > 12*sec {
		d.Head, d.Count = 6, 4
	}
	s.h.Deliveries = append(s.h.Deliveries, d)
	return l
}

// deliver adds an event: before 13 s as a live event, from then on as part of a replay.
func (s *story) deliver(life, at, seq int64) *Delivery {
	e := s.entry(seq)
	d := Delivery{Life: life, At: at, Seq: seq, From: seq}
	about := seq
	switch e.Kind {
	case entrySend:
		d.Event = EventSent
	case entryEdit:
		d.Event, about = EventEdited, e.TargetSeq
	default:
		d.Event, about = EventRecalled, e.TargetSeq
	}
	if d.Copy = s.now(about); d.Event == EventSent && at < 13*sec {
		d.Copy = s.first(about)
	}
	s.h.Deliveries = append(s.h.Deliveries, d)
	return &s.h.Deliveries[len(s.h.Deliveries)-1]
}

// cache sets the cached set to match the current log.
func (s *story) cache() {
	last := s.t.Entries[len(s.t.Entries)-1]
	state, err := json.Marshal(cachedEntry{Epoch: epoch, Seq: last.Seq, Count: last.Count})
	if err != nil {
		s.Fatal(err)
	}
	values := []CachedValue{{Score: 0, Value: string(state)}}
	for i := range s.t.Entries {
		e := &s.t.Entries[i]
		if e.Kind != entrySend {
			continue
		}
		if e.ChangedSeq != e.Seq {
			values = append([]CachedValue{{Score: -e.ChangedSeq, Value: fmt.Sprint("c:", e.Seq)}}, values...)
		}
		c := cachedEntry{
			Epoch: epoch, Seq: e.Seq, MsgID: e.MsgID, Count: e.Count, From: e.From, Type: e.Type, Content: e.Content,
			Metadata: e.Metadata, ClientMsgID: e.ClientMsgID, Time: e.Time, Status: e.Status, ChangedSeq: e.ChangedSeq,
		}
		data, err := json.Marshal(c)
		if err != nil {
			s.Fatal(err)
		}
		values = append(values, CachedValue{Score: e.Seq, Value: string(data)})
	}
	s.t.Cache[channel] = values
}

// publish adds the change stream, with each message in its state when the entry was appended.
func (s *story) publish() {
	for i := range s.t.Entries {
		e := &s.t.Entries[i]
		p := Published{
			At: s.asked(e.Seq).Begin, Number: uint64(e.Seq), Event: "insert", Epoch: epoch, Seq: e.Seq, Channel: channel, MsgID: e.MsgID, Count: e.Count,
			ChangedSeq: e.Seq,
		}
		m := e
		if e.Kind != entrySend {
			p.TargetSeq = e.TargetSeq
			m = s.entry(e.TargetSeq)
			p.MsgCount = m.Count
		}
		p.From, p.Type, p.Content, p.Metadata, p.ClientMsgID, p.MsgTime = m.From, m.Type, m.Content, m.Metadata, m.ClientMsgID, m.Time
		switch e.Kind {
		case entryEdit:
			p.Event, p.Status, p.Content = "edit", StatusEdited, e.Content
		case entryRecall:
			p.Event, p.Status, p.Content, p.Metadata = "recall", StatusRecalled, "", nil
		}
		s.t.Published = append(s.t.Published, p)
	}
}

// drop removes an entry from the log in the store.
func (s *story) drop(seq int64) {
	s.t.Entries = slices.Delete(s.t.Entries, int(seq)-1, int(seq))
}

// delivery returns the event with that seq that a life received.
func (s *story) delivery(life, seq int64) *Delivery {
	for i := range s.h.Deliveries {
		if d := &s.h.Deliveries[i]; d.Life == life && d.Seq == seq && d.Event != EventState {
			return d
		}
	}
	s.Fatalf("life %d has no event %d", life, seq)
	return nil
}

// fillStream adds a fault that made the change stream drop its first event.
func (s *story) fillStream() {
	s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(chaos.NATSBytes), Target: "nats", Begin: 9 * sec, End: 10 * sec})
	s.t.Dropped = 1
}

// lastPage is the op that read the ascending page from the log's start, newestPage the one that
// read the newest messages, got the one that read a single message.
func (s *story) lastPage() *Op   { return &s.h.Ops[6] }
func (s *story) newestPage() *Op { return &s.h.Ops[7] }
func (s *story) got() *Op        { return &s.h.Ops[8] }

func TestCheckPassesWhatIsRight(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *story){
		"as it is": func(*story) {},
		"an unknown write that is stored": func(s *story) {
			s.asked(4).Outcome = chaos.Unknown
		},
		"an unknown write that is not": func(s *story) {
			s.op(Op{Client: "w", Kind: Send, Begin: sec, Channel: channel, From: "author", ClientMsgID: "x", Outcome: chaos.Unknown})
		},
		"a write that was refused and is not stored": func(s *story) {
			s.op(Op{Client: "w", Kind: Edit, Begin: sec, Channel: channel, From: "author", ClientMsgID: "x", Outcome: chaos.Failed})
		},
		"a repeat": func(s *story) {
			op := *s.asked(1)
			op.Begin, op.End, op.Repeat, op.Duplicate = 20*sec, 21*sec, true, true
			s.op(op)
		},
		"a second recall": func(s *story) {
			op := *s.asked(5)
			op.ClientMsgID, op.Begin, op.End, op.Duplicate, op.TimeMS = "b3", 20*sec, 21*sec, true, 0
			s.op(op)
		},
		"answers with messages": func(s *story) {
			s.asked(3).Copies, s.asked(5).Copies = []int{s.now(1)}, []int{s.now(2)}
		},
		"an event that covers entries which came before": func(s *story) { s.delivery(1, 4).From = 2 },
		"a read half a second after an edit that does not show it": func(s *story) {
			op := s.page("r", s.asked(3).End+sec/2, unset, unset, false, 2, 1)
			op.Head, op.Copies = 2, []int{s.first(2), s.first(1)}
		},
		"a text that was on its way when it was recalled": func(s *story) {
			s.delivery(1, 2).At = s.asked(5).End + 2*sec
			for _, seq := range []int64{3, 4, 5, 6} {
				s.delivery(1, seq).At = s.asked(5).End + 2*sec + seq
			}
		},
		"a text that a stopped node held back": func(s *story) {
			s.h.Faults = append(s.h.Faults, chaos.Fault{Name: "node-stop", Target: "n1", Begin: 9 * sec, End: 30 * sec, Holds: true})
			for seq := int64(2); seq <= 6; seq++ {
				s.delivery(1, seq).At = 30*sec + seq
			}
		},
		"a full change stream that dropped its first events": func(s *story) {
			s.fillStream()
			s.t.Published = s.t.Published[2:]
		},
		"a full change stream that dropped its first events, with times from a fast clock": func(s *story) {
			s.fillStream()
			s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(chaos.NodeClock), Target: "n1", Begin: -20 * sec})
			s.t.Published = s.t.Published[2:]
			s.t.Published[0].At = s.entry(2).Time.Add(-9 * time.Second).UnixNano()
		},
		"a full change stream of which an event came back that it had dropped": func(s *story) {
			s.fillStream()
			s.t.Published, s.t.Dropped = slices.Delete(s.t.Published, 1, 3), 3
		},
		"a text that a slow client took long after its recall": func(s *story) {
			s.h.Lives[0].Slow = true
			for seq := int64(2); seq <= 6; seq++ {
				s.delivery(1, seq).At = 30*sec + seq
			}
		},
		"a subscriber that left": func(s *story) {
			s.life("gone", 0, 0).End = 5 * sec
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			change(s)
			for _, v := range Check(s.h, s.t) {
				t.Errorf("reported %s", v)
			}
		})
	}
}

// TestCheckOfReplacedEdit checks that a replay may lack the event of an edit that a later entry
// replaced, but only if the next event covers that edit.
func TestCheckOfReplacedEdit(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name string
		from int64 // the first entry that the event of 4 covers
		want []chaos.Name
	}{
		{"covered", 3, nil},
		{"covered with entries that came before", 1, nil},
		{"left out", 4, []chaos.Name{Hole}},
		{"covered by no valid range", 5, []chaos.Name{Hole, WrongCopy}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			s := newStoryOf(t, "b")
			s.delivery(2, 3).Life = 9
			s.delivery(2, 4).From = one.from
			var names []chaos.Name
			for _, v := range Check(s.h, s.t) {
				names = append(names, v.Name)
			}
			if !slices.Equal(names, one.want) {
				t.Errorf("found %v, want %v", names, one.want)
			}
		})
	}
}

// TestCheckOfOlderCopies checks that a stream which showed a message with a later change may not
// show it without that change.
func TestCheckOfOlderCopies(t *testing.T) {
	t.Parallel()
	for _, sdk := range []bool{false, true} {
		s := newStoryOf(t, "b")
		for i := range s.h.Lives {
			s.h.Lives[i].SDK = sdk
		}
		s.delivery(1, 2).Copy = s.now(2)
		s.delivery(1, 3).Copy = s.copy(2, 3, StatusEdited, text1("a2"), s.asked(2).Metadata)
		found := Check(s.h, s.t)
		if got := slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == OlderCopy }); got == sdk {
			t.Errorf("SDK %t: found %v", sdk, found)
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(wrongLogs, wrongAnswers, wrongReads, wrongStreams, wrongStores) {
		t.Run(fmt.Sprintf("%s: %s", tt.want, tt.name), func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			tt.change(s)
			found := Check(s.h, s.t)
			if !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == tt.want }) {
				t.Errorf("not found; found %v", found)
			}
		})
	}
}

// TestCheckLimit checks that many violations of one name are limited and counted, so that they do
// not hide others.
func TestCheckLimit(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	for i := range s.t.Entries {
		s.t.Entries[i].Count += 100
		s.t.Entries[i].Count -= int64(7 * i)
	}
	counts := make(map[chaos.Name]int)
	for _, v := range check(s.h, s.t, 2) {
		counts[v.Name]++
	}
	if counts[Count] != 3 {
		t.Errorf("%d violations of %s, want 2 and how many more", counts[Count], Count)
	}
}
