package main

import (
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// history returns the journal of a channel with three messages: the first has expired, the second
// was edited twice, the third recalled. The log is: send, send, edit, send, edit, recall.
func history() (*journal, *final) {
	d := &days{channels: []string{"c"}, byID: make(map[string]int32)}
	for _, id := range []string{"a", "b", "c"} {
		d.addLine(line{id: id, from: "nick", content: "text of " + id})
	}
	j := newJournal(d)
	for seq, e := range []entry{{0, 0}, {1, 0}, {1, 1}, {2, 0}, {1, 2}, {2, recalled}} {
		j.acked(e.line, e.version, "msg-"+d.lines[e.line].id, int64(seq+1))
	}
	return j, j.settled(0, 2)
}

// event returns the event of an entry, which covers those from first on.
func event(j *journal, first, seq int64, kind parley.EventKind) *parley.Event {
	e := j.logs[0][seq]
	return &parley.Event{Kind: kind, ChannelID: "c", FromSeq: first, Seq: seq, Message: message(j, e.line, e.version, seq)}
}

func message(j *journal, i int32, v version, changed int64) *parley.Message {
	l, s := &j.days.lines[i], &j.states[i]
	return &parley.Message{
		MsgId: s.msgID, ChannelId: "c", Seq: int64(s.seq), Count: int64(i) + 1, FromId: l.from, ClientMsgId: l.id,
		Content: l.text(v), Status: statusOf(v), ChangedSeq: changed,
	}
}

func gone(after, to int64) *parley.Event {
	return &parley.Event{Kind: parley.EventGap, ChannelID: "c", Seq: to, Gap: &parleyv1.ChannelGap{
		AfterSeq: after, ToSeq: to, Reason: parleyv1.GapReason_GAP_REASON_HISTORY_GONE,
	}}
}

func stateAt(seq int64) *parley.Event {
	return &parley.Event{Kind: parley.EventChannelState, ChannelID: "c", Seq: seq, Channel: &parleyv1.ChannelState{Recovered: true}}
}

// TestSubscriberCheck checks which deliveries a subscriber's check accepts.
func TestSubscriberCheck(t *testing.T) {
	t.Parallel()
	const sent, edited, withdrawn = parley.EventSent, parley.EventEdited, parley.EventRecalled
	for name, test := range map[string]struct {
		events func(j *journal) []*parley.Event
		wrong  bool
	}{
		"all": {events: func(j *journal) []*parley.Event {
			return []*parley.Event{
				event(j, 1, 1, sent), event(j, 2, 2, sent), event(j, 3, 3, edited), event(j, 4, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn),
			}
		}},
		"a replay": {events: func(j *journal) []*parley.Event {
			second := event(j, 2, 2, sent)
			second.Message = message(j, 1, 2, 5)
			third := event(j, 3, 4, sent)
			third.Message = message(j, 2, recalled, 6)
			return []*parley.Event{gone(0, 1), second, third, event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"a message is left out": {wrong: true, events: func(j *journal) []*parley.Event {
			return []*parley.Event{gone(0, 1), event(j, 2, 2, sent), event(j, 3, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"the last edit is left out": {wrong: true, events: func(j *journal) []*parley.Event {
			return []*parley.Event{gone(0, 1), event(j, 2, 2, sent), event(j, 3, 4, sent), event(j, 5, 6, withdrawn)}
		}},
		"a state further on": {events: func(j *journal) []*parley.Event {
			return []*parley.Event{event(j, 1, 1, sent), event(j, 2, 2, sent), stateAt(3), event(j, 4, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"a state behind a message": {wrong: true, events: func(j *journal) []*parley.Event {
			return []*parley.Event{event(j, 1, 1, sent), stateAt(2), event(j, 3, 3, edited), event(j, 4, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"a hole": {wrong: true, events: func(j *journal) []*parley.Event {
			return []*parley.Event{event(j, 2, 2, sent), event(j, 3, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"a gap beyond the boundary": {wrong: true, events: func(j *journal) []*parley.Event {
			return []*parley.Event{gone(0, 3), event(j, 4, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
		"another text": {wrong: true, events: func(j *journal) []*parley.Event {
			last := event(j, 5, 5, edited)
			last.Message.Content = "text of b (edited 1)"
			return []*parley.Event{gone(0, 1), event(j, 2, 2, sent), event(j, 3, 4, sent), last, event(j, 6, 6, withdrawn)}
		}},
		"a text after its recall": {wrong: true, events: func(j *journal) []*parley.Event {
			last := event(j, 6, 6, withdrawn)
			last.Message.Content = "text of c"
			return []*parley.Event{gone(0, 1), event(j, 2, 2, sent), event(j, 3, 4, sent), event(j, 5, 5, edited), last}
		}},
		"an older version later": {wrong: true, events: func(j *journal) []*parley.Event {
			second := event(j, 2, 2, sent)
			second.Message = message(j, 1, 2, 5)
			return []*parley.Event{gone(0, 1), second, event(j, 3, 3, edited), event(j, 4, 4, sent), event(j, 5, 5, edited), event(j, 6, 6, withdrawn)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, f := history()
			s := &subscriber{journal: j, name: "s", channels: make([]follower, 1)}
			for _, e := range test.events(j) {
				s.take(e)
			}
			s.check(f)
			if err := j.Problems(); (err != nil) != test.wrong {
				t.Errorf("found %v", err)
			}
		})
	}
}

// TestJournal checks that two acknowledgements of one entry are found, and how a channel must be.
func TestJournal(t *testing.T) {
	t.Parallel()
	j, f := history()
	if f.head != 6 || len(f.messages) != 2 || f.messages[0] != 1 || f.counts[6] != 3 || f.counts[3] != 2 {
		t.Errorf("the channel must be %+v", f)
	}
	if got := j.headBefore(0, time.Now().Add(time.Hour)); got != 6 {
		t.Errorf("the log ends at %d", got)
	}
	j.checkMessage("a page", f, 1, message(j, 1, 2, 5))
	if err := j.Problems(); err != nil {
		t.Errorf("a right message is wrong: %v", err)
	}
	j.checkMessage("a page", f, 1, message(j, 1, 1, 3))
	if j.Count() != 1 {
		t.Error("an old message is right")
	}
	j.acked(0, 1, "msg-a", 6)
	if j.Count() != 2 {
		t.Error("an entry was acknowledged twice")
	}
}

// TestMemory checks when memory is flat.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		middle, end []float64
		flat        bool
	}{
		{[]float64{100, 101, 99}, []float64{120, 128, 119}, true},
		{[]float64{100, 101, 99}, []float64{130, 128, 140}, false},
		{[]float64{1}, []float64{9}, true},
		{[]float64{1}, nil, false},
	} {
		m := &memory{gauges: []*gauge{{name: "g", slack: 8, middle: test.middle, end: test.end}}}
		if text, err := m.judge(); (err == nil) != test.flat {
			t.Errorf("%v to %v: %s, %v", test.middle, test.end, text, err)
		}
	}
}

// TestBudgets checks that the budgets of the probed calls can be read.
func TestBudgets(t *testing.T) {
	t.Parallel()
	budgets, err := readBudgets()
	if err != nil {
		t.Fatal(err)
	}
	if b := budgets["EditMessage, 64 KiB, the 300th edit"]; b.mongo < 5 || b.redis < 1 || len(budgets) < 40 {
		t.Errorf("%d budgets, of an edit %+v", len(budgets), b)
	}
}
