package fanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// fakeTexts is a Texts that the test fills.
type fakeTexts struct {
	mu    sync.Mutex
	texts map[string][]message.OpenText
	fail  error
	reads int
}

func (f *fakeTexts) Texts(_ context.Context, channelID string) ([]message.OpenText, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return slices.Clone(f.texts[channelID]), f.fail
}

func (f *fakeTexts) set(channelID string, texts ...message.OpenText) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts[channelID] = texts
}

const session = "~s"

// setupTexts returns a rig of a hub that reads texts from the fake.
func setupTexts(tb testing.TB, cfg Config) (*rig, *fakeTexts) {
	tb.Helper()
	texts := &fakeTexts{texts: map[string][]message.OpenText{}}
	cfg.Texts = texts
	return setup(tb, cfg), texts
}

// addOpen appends an open message to the session and returns its event.
func (r *rig) addOpen(msgID string) message.Event {
	e := r.log.addSized(session, 0)
	r.log.edit(session, e.Seq, func(e *message.Event) {
		e.Message.MsgID, e.Message.Status, e.Message.Content = msgID, message.StatusOpen, "o"
	})
	e.Message.MsgID, e.Message.Status, e.Message.Content = msgID, message.StatusOpen, "o"
	return e
}

// addClose appends the close of the message at seq.
func (r *rig) addClose(seq int64, kind message.Kind) message.Event {
	r.log.mu.Lock()
	id := r.log.channel(session).events[seq-1].Message.MsgID
	r.log.mu.Unlock()
	e := r.log.addEdit(session, seq, "final")
	for _, at := range []int64{seq, e.Seq} {
		r.log.edit(session, at, func(ev *message.Event) {
			ev.Message.MsgID, ev.Message.Status, ev.Message.ChangedSeq = id, kind.After(), e.Seq
			if ev.Seq == e.Seq {
				ev.Kind = kind
			}
		})
	}
	e.Kind, e.Message.MsgID, e.Message.Status, e.Message.ChangedSeq = kind, id, kind.After(), e.Seq
	return e
}

func (r *rig) delta(msgID string, seq, attempt int64, offset int, text string) {
	r.bus.delta(session, message.Delta{MsgID: msgID, Seq: seq, Attempt: attempt, Offset: offset, Text: text})
}

func deltaLine(msgID string, offset int, text string) string {
	return fmt.Sprintf("delta(-/0,%s@%d:%s)", msgID, offset, text)
}

// TestDeltas follows an open message: each subscriber gets its text once, in pieces, after the
// message and before its close.
func TestDeltas(t *testing.T) {
	t.Parallel()
	for _, kind := range []message.Kind{message.KindComplete, message.KindCancel, message.KindFail, message.KindRecall} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := setupTexts(t, noChecks())
			a, slow := r.open(live(session)), r.open(live(session))
			r.read(a)
			r.read(slow)
			open := r.addOpen("m")
			r.delta("m", 1, 5, 0, "one") // before the message
			equal(t, r.read(a), map[string]string{})
			r.bus.publish(open)
			equal(t, r.read(a)[session], "e1/1 "+deltaLine("m", 0, "one"))
			r.delta("m", 1, 5, 3, "two")
			equal(t, r.read(a)[session], deltaLine("m", 3, "two"))
			r.delta("m", 1, 5, 3, "two") // again
			r.delta("m", 1, 5, 6, "")
			equal(t, r.read(a), map[string]string{})
			r.delta("m", 1, 5, 4, "wothree")
			equal(t, r.read(a)[session], deltaLine("m", 6, "three"))
			equal(t, r.read(slow)[session], "e1/1 "+deltaLine("m", 0, "onetwothree"))
			r.delta("m", 1, 5, 11, "unread")
			r.bus.publish(r.addClose(1, kind))
			r.delta("m", 1, 5, 17, "late")
			r.delta("m", 1, 5, 0, "late")
			for _, s := range []*Stream{a, slow} {
				equal(t, r.read(s)[session], "e1/2")
			}
			equal(t, r.hub.stats.texts.Load(), int64(0))
			equal(t, r.hub.stats.textBytes.Load(), int64(0))
		})
	}
}

// TestDeltaAttempts checks that the text of a higher attempt replaces that of a lower one.
func TestDeltaAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := setupTexts(t, noChecks())
		r.addOpen("m")
		s := r.open(live(session))
		r.read(s)
		r.delta("m", 1, 5, 0, "one")
		equal(t, r.read(s)[session], deltaLine("m", 0, "one"))
		r.delta("m", 1, 6, 0, "anew")
		r.delta("m", 1, 5, 3, "two")
		r.delta("m", 1, 6, 4, "er")
		equal(t, r.read(s)[session], deltaLine("m", 0, "anewer"))
		equal(t, r.hub.stats.textBytes.Load(), int64(6))
	})
}

// TestDeltaJoiners checks what subscribers get that begin in the middle: the text so far, from the
// topic or from where other nodes find it, and only of messages that are open.
func TestDeltaJoiners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, texts := setupTexts(t, noChecks())
		r.addOpen("m")
		r.addOpen("closed")
		r.addClose(2, message.KindComplete)
		texts.set(session,
			message.OpenText{MsgID: "m", Seq: 1, Attempt: 5, Text: "known"},
			message.OpenText{MsgID: "closed", Seq: 2, Attempt: 5, Text: "ghost"},
			message.OpenText{MsgID: "none", Seq: 9, Attempt: 5, Text: "ghost"})
		first := r.open(after(session, 3))
		equal(t, r.read(first)[session], "state(e1/3,head=3,recovered=true) "+deltaLine("m", 0, "known"))
		r.delta("m", 1, 5, 5, "+")
		equal(t, r.read(first)[session], deltaLine("m", 5, "+"))
		for _, from := range []int64{0, 1, 3} {
			if got := r.read(r.open(after(session, from)))[session]; !strings.HasSuffix(got, " "+deltaLine("m", 0, "known+")) {
				t.Errorf("after %d: %s", from, got)
			}
		}
		equal(t, texts.reads, 1)
		// A restart of one subscription shows the text again, and the others are left alone.
		if err := first.Add([]Position{after(session, 3)}); err != nil {
			t.Fatal(err)
		}
		equal(t, r.read(first)[session], "state(e1/3,head=3,recovered=true) "+deltaLine("m", 0, "known+"))
		if err := remove(first, session); err != nil {
			t.Fatal(err)
		}
		r.delta("m", 1, 5, 6, "+")
		equal(t, r.read(first), map[string]string{})
	})
}

// TestDeltaClosedUnseen checks that a subscriber whose replay has the end of a message gets nothing
// of its text, although the event of that end has not arrived yet.
func TestDeltaClosedUnseen(t *testing.T) {
	t.Parallel()
	for _, kind := range []message.Kind{message.KindComplete, message.KindRecall} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := setupTexts(t, noChecks())
			first := r.open(after(session, 0))
			r.read(first)
			r.bus.publish(r.addOpen("m"))
			r.delta("m", 1, 5, 0, "one")
			equal(t, r.read(first)[session], "e1/1 "+deltaLine("m", 0, "one"))
			closed := r.addClose(1, kind)
			second := r.open(after(session, 0))
			equal(t, r.read(second)[session], "state(e1/0,head=2,recovered=true) e1/1 e1/2")
			r.delta("m", 1, 5, 3, "late")
			equal(t, r.read(second), map[string]string{})
			r.bus.publish(closed)
			equal(t, r.read(first)[session], "e1/2")
			equal(t, r.hub.stats.texts.Load(), int64(0))
		})
	}
}

// TestDeltaSentClosed checks that a message whose own event has it closed gets no text, although
// its close comes later.
func TestDeltaSentClosed(t *testing.T) {
	t.Parallel()
	for _, status := range []message.Status{message.StatusComplete, message.StatusFailed, message.StatusRecalled} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := setupTexts(t, noChecks())
			s := r.open(live(session))
			r.read(s)
			e := r.addOpen("m")
			e.Message.Status, e.Message.ChangedSeq = status, 2
			r.bus.publish(e)
			equal(t, r.read(s)[session], "e1/1")
			r.delta("m", 1, 5, 0, "late")
			equal(t, r.read(s), map[string]string{})
			equal(t, r.hub.stats.texts.Load(), int64(0))
		})
	}
}

// TestDeltaLost checks that a missing delta is found where other nodes find the text, and that what
// arrived meanwhile is not lost.
func TestDeltaLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, texts := setupTexts(t, noChecks())
		r.addOpen("m")
		s := r.open(live(session))
		r.read(s)
		r.delta("m", 1, 5, 0, "one")
		r.read(s)
		r.delta("m", 1, 5, 6, "three") // "two" is lost
		r.delta("m", 1, 5, 11, "four")
		texts.mu.Lock()
		texts.fail = errors.New("away")
		texts.mu.Unlock()
		equal(t, r.read(s), map[string]string{})
		time.Sleep(holeWait * 2)
		equal(t, r.read(s), map[string]string{})
		texts.mu.Lock()
		texts.fail = nil
		texts.mu.Unlock()
		texts.set(session, message.OpenText{MsgID: "m", Seq: 1, Attempt: 5, Text: "onetwothr"})
		time.Sleep(10 * time.Second)
		equal(t, r.read(s)[session], deltaLine("m", 3, "twothreefour"))
		reads := texts.reads
		time.Sleep(time.Minute)
		equal(t, texts.reads, reads)
		r.delta("m", 1, 5, 15, "five")
		equal(t, r.read(s)[session], deltaLine("m", 15, "five"))
	})
}

// TestDeltaForgotten checks that a topic forgets its texts when it may have missed the end of a
// message, and reads them again.
func TestDeltaForgotten(t *testing.T) {
	t.Parallel()
	for name, miss := range map[string]func(r *rig){
		"another epoch": func(r *rig) {
			r.log.restore(session, "e2", 1)
			r.send(session)
		},
		"the close is lost while nobody is live": func(r *rig) {
			r.addClose(1, message.KindComplete)
		},
		"the close is lost": func(r *rig) {
			r.addClose(1, message.KindComplete)
			r.send(session)
		},
		"a hole while nobody is live": func(r *rig) {
			r.addClose(1, message.KindComplete)
			r.send(session)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, texts := setupTexts(t, noChecks())
			r.addOpen("m")
			s := r.open(live(session))
			r.read(s)
			r.delta("m", 1, 5, 0, "one")
			r.read(s)
			if strings.Contains(name, "nobody") {
				if err := remove(s, session); err != nil {
					t.Fatal(err)
				}
			}
			miss(r)
			texts.set(session, message.OpenText{MsgID: "m", Seq: 1, Attempt: 5, Text: "ghost"})
			r.read(s)
			time.Sleep(time.Second)
			joiner := r.open(live(session))
			got := r.read(joiner)[session]
			time.Sleep(time.Second)
			got += r.read(joiner)[session]
			if shows := strings.Contains(got, "ghost"); shows != (name == "another epoch") {
				t.Errorf("%s: %s", name, got)
			}
			if held := r.hub.stats.texts.Load(); (held == 1) != (name == "another epoch") {
				t.Errorf("%s: %d texts", name, held)
			}
		})
	}
}

// TestDeltaBounds checks the bounds of the texts, and that a stream that drains ends.
func TestDeltaBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.TextBytes = 10
		r, _ := setupTexts(t, cfg)
		r.addOpen("m")
		r.addOpen("n")
		s := r.open(live(session))
		r.read(s)
		r.delta("m", 1, 5, 0, "12345678")
		r.delta("n", 2, 5, 0, "123")
		r.delta("n", 2, 5, 0, "12")
		equal(t, r.read(s)[session], deltaLine("m", 0, "12345678")+" "+deltaLine("n", 0, "12"))
		for i := range message.MaxOpenTexts {
			r.delta(fmt.Sprint("x", i), 1, 5, 0, "")
		}
		equal(t, r.hub.stats.texts.Load(), int64(message.MaxOpenTexts))
		time.Sleep(textIdle + time.Second)
		r.delta("y", 1, 5, 0, "")
		equal(t, r.hub.stats.texts.Load(), int64(1))
		r.delta("y", 1, 5, 0, "1")
		equal(t, r.read(s)[session], deltaLine("y", 0, "1"))

		r.delta("y", 1, 5, 1, "2")
		s.Drain(time.Second)
		if f, err := s.Next(t.Context()); err != nil || f.Reconnect == 0 {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// TestDeltaFrames checks that texts share frames up to FrameBytes.
func TestDeltaFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.FrameBytes = 150
		r, _ := setupTexts(t, cfg)
		for i := range 4 {
			r.addOpen(fmt.Sprint("m", i))
		}
		s := r.open(live(session))
		r.read(s)
		for i := range 4 {
			r.delta(fmt.Sprint("m", i), 1, 5, 0, strings.Repeat("x", 60))
		}
		for range 4 / 2 {
			if f, err := s.Next(t.Context()); err != nil || len(f.Pieces) != 1 {
				t.Errorf("%d pieces, %v", len(f.Pieces), err)
			}
		}
		r.read(s)
	})
}

// TestDeltaModel streams a text over a bus that loses, repeats and reorders deltas, to subscribers
// that come, go and stop reading. What each has is always a prefix of the highest attempt's text
// that was published, and at last all of it.
func TestDeltaModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for round := range 30 {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			r, texts := setupTexts(t, noChecks())
			r.addOpen("m")
			m := deltaModel{t: t, r: r, texts: texts, rnd: rnd, attempt: 1, seed: seed}
			for range 200 {
				m.step()
			}
			m.settle()
		})
	}
}

type deltaModel struct {
	t       *testing.T
	r       *rig
	texts   *fakeTexts
	rnd     *rand.Rand
	seed    uint64
	attempt int64
	text    string
	held    []message.Delta
	subs    []*modelReader
}

type modelReader struct {
	s    *Stream
	text string
}

func (m *deltaModel) step() {
	switch n := m.rnd.IntN(20); {
	case n < 10:
		piece := fmt.Sprintf("%d,", m.rnd.IntN(1000))
		d := message.Delta{MsgID: "m", Seq: 1, Attempt: m.attempt, Offset: len(m.text), Text: piece}
		m.text += piece
		switch m.rnd.IntN(6) {
		case 0: // lost
		case 1:
			m.held = append(m.held, d)
		case 2:
			m.r.bus.delta(session, d)
			m.r.bus.delta(session, d)
		default:
			m.r.bus.delta(session, d)
		}
	case n < 12:
		m.rnd.Shuffle(len(m.held), func(i, j int) { m.held[i], m.held[j] = m.held[j], m.held[i] })
		for _, d := range m.held {
			m.r.bus.delta(session, d)
		}
		m.held = nil
	case n < 13:
		m.mirror()
	case n < 15:
		m.subs = append(m.subs, &modelReader{s: m.r.open(after(session, int64(m.rnd.IntN(2))))})
	case n < 16 && len(m.subs) > 0:
		i := m.rnd.IntN(len(m.subs))
		m.subs[i].s.Close()
		m.subs = slices.Delete(m.subs, i, i+1)
	case n < 17 && m.rnd.IntN(5) == 0:
		m.attempt, m.text = m.attempt+1, ""
	case n < 19 && len(m.subs) > 0:
		m.read(m.subs[m.rnd.IntN(len(m.subs))])
	default:
		time.Sleep(time.Duration(m.rnd.IntN(500)) * time.Millisecond)
	}
}

func (m *deltaModel) mirror() {
	m.texts.set(session, message.OpenText{MsgID: "m", Seq: 1, Attempt: m.attempt, Text: m.text})
}

// read reads what is due for a subscriber and checks its text.
func (m *deltaModel) read(s *modelReader) {
	m.t.Helper()
	for part := range strings.SplitSeq(m.r.read(s.s)[session], " ") {
		body, ok := strings.CutPrefix(part, "delta(-/0,m@")
		if !ok {
			continue
		}
		var offset int
		at, text, _ := strings.Cut(strings.TrimSuffix(body, ")"), ":")
		if _, err := fmt.Sscan(at, &offset); err != nil || offset > len(s.text) {
			m.t.Fatalf("%s after %q (seed %d)", part, s.text, m.seed)
		}
		s.text = s.text[:offset] + text
	}
}

// settle lets the mirror have the text and one more delta arrive.
func (m *deltaModel) settle() {
	m.t.Helper()
	m.mirror()
	m.r.bus.delta(session, message.Delta{MsgID: "m", Seq: 1, Attempt: m.attempt, Offset: len(m.text), Text: "end"})
	m.text += "end"
	m.mirror()
	time.Sleep(time.Minute)
	for _, s := range m.subs {
		if m.read(s); s.text != m.text {
			m.t.Fatalf("a subscriber has %q of %q (seed %d)", s.text, m.text, m.seed)
		}
	}
}
