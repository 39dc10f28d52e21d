package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// delta appends a delta and returns the result as text.
func delta(t *testing.T, s *Service, m target, attempt int64, offset int, text string) string {
	t.Helper()
	length, status, err := s.AppendDelta(bot(t), DeltaRequest{
		SessionID: "s", MsgID: m.msgID, Token: token(s, m, attempt), Offset: offset, Text: text,
	})
	if f, ok := fault.As(err); ok {
		return strings.TrimSpace(fmt.Sprintln(f.Reason, f.Field, f.Limit))
	}
	return fmt.Sprintln(length, status)[:len(fmt.Sprintln(length, status))-1]
}

// texts returns what was published, as attempt@offset:text.
func (f *fleet) texts() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, p := range f.published {
		all = append(all, fmt.Sprintf("%d@%d:%s", p.Attempt, p.Offset, p.Text))
	}
	return strings.Join(all, " ")
}

func TestAppendDelta(t *testing.T) {
	t.Parallel()
	f := newFleet()
	s, m := serviceOn(f, f.node(t, false)), f.open("m", time.Now())
	for _, step := range []struct {
		attempt      int64
		offset       int
		text, result string
	}{
		{5, 0, "one", "3 -1"},
		{5, 3, "", "3 -1"},
		{5, 3, "two", "6 -1"},
		{5, 3, "two", "6 -1"},
		{5, 0, "onetwo3", "7 -1"},
		{5, 9, "x", "POSITION_OUT_OF_RANGE offset 7"},
		{5, 3, "tWo", "INVALID_FIELD text 0"},
		{5, 7, strings.Repeat("x", 94), "LIMIT_EXCEEDED text 100"},
		{4, 0, "old", "APPEND_SUPERSEDED  0"},
		{6, 3, "new", "POSITION_OUT_OF_RANGE offset 0"},
		{6, 0, "new", "3 -1"},
		{5, 7, "more", "APPEND_SUPERSEDED  0"},
	} {
		if got := delta(t, s, m, step.attempt, step.offset, step.text); got != step.result {
			t.Errorf("%+v: %s", step, got)
		}
	}
	if got := f.texts(); got != "5@0:one 5@3: 5@3:two 5@6: 5@6:3 6@0:new" {
		t.Errorf("published %s", got)
	}
}

func TestAppendToken(t *testing.T) {
	t.Parallel()
	f := newFleet()
	s, m := serviceOn(f, f.node(t, false)), f.open("m", time.Now())
	sealed := token(s, m, 5)
	ann := ident.NewContext(t.Context(), &ident.Principal{Subject: "ann", Sessions: []ident.Capability{{Pattern: "*", Actions: ident.SessionActions}}})
	for name, try := range map[string]struct {
		r   DeltaRequest
		ann bool
	}{
		"another message": {DeltaRequest{SessionID: "s", MsgID: "n", Token: sealed}, false},
		"another session": {DeltaRequest{SessionID: "r", MsgID: "m", Token: sealed}, false},
		"another subject": {DeltaRequest{SessionID: "s", MsgID: "m", Token: sealed}, true},
		"changed":         {DeltaRequest{SessionID: "s", MsgID: "m", Token: sealed[:len(sealed)-1] + "_"}, false},
		"short":           {DeltaRequest{SessionID: "s", MsgID: "m", Token: "abc"}, false},
	} {
		ctx := bot(t)
		if try.ann {
			ctx = ann
		}
		if _, _, err := s.AppendDelta(ctx, try.r); !fault.Is(err, fault.InvalidField) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.AppendDelta(t.Context(), DeltaRequest{}); !fault.Is(err, fault.TokenInvalid) {
		t.Errorf("without a principal: %v", err)
	}
	if len(f.published) > 0 {
		t.Errorf("published %v", f.published)
	}
}

// TestGeneratorMoves checks that a text goes on through another node, from the mirror, and anew if
// the mirror has lost it.
func TestGeneratorMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b, c := serviceOn(f, f.node(t, true)), serviceOn(f, f.node(t, true)), serviceOn(f, f.node(t, true))
		m := f.open("m", time.Now())
		equal(t, delta(t, a, m, 5, 0, "one"), "3 -1")
		time.Sleep(mirrorEvery * 2)
		equal(t, delta(t, b, m, 5, 3, "two"), "6 -1")
		equal(t, delta(t, b, m, 4, 6, "x"), "APPEND_SUPERSEDED  0")
		time.Sleep(mirrorEvery * 2)
		f.mu.Lock()
		clear(f.mirror)
		f.mu.Unlock()
		equal(t, delta(t, c, m, 5, 6, "three"), "POSITION_OUT_OF_RANGE offset 0")
		equal(t, delta(t, c, m, 5, 0, "onetwothree"), "11 -1")
		// The nodes do not take each other's texts back.
		time.Sleep(mirrorEvery * 2)
		equal(t, delta(t, b, m, 5, 6, ""), "6 -1")
		time.Sleep(mirrorEvery * 2)
		equal(t, f.mirrored(m).Text, "onetwothree")
	})
}

// TestGeneratorAlternates checks that deltas may reach nodes in turn.
func TestGeneratorAlternates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		nodes := []*Service{serviceOn(f, f.node(t, true)), serviceOn(f, f.node(t, true))}
		m := f.open("m", time.Now())
		for i := range 10 {
			equal(t, delta(t, nodes[i%2], m, 5, 3*i, "one"), fmt.Sprint(3*i+3, " -1"))
			time.Sleep(mirrorEvery * 2)
		}
	})
}

// TestMirror checks that the mirror is written at most every mirrorEvery, again after it was away,
// and from the start if it has lost a text.
func TestMirror(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s, m := serviceOn(f, f.node(t, true)), f.open("m", time.Now())
		f.setAway(errors.New("away"))
		for i := range 10 {
			delta(t, s, m, 5, i, "x")
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		f.mu.Lock()
		puts := f.puts
		f.away = nil
		f.mu.Unlock()
		if puts > 2 {
			t.Errorf("%d writes in 100 ms", puts)
		}
		time.Sleep(mirrorEvery * 2)
		equal(t, f.mirrored(m).Text, "xxxxxxxxxx")
		f.mu.Lock()
		clear(f.mirror)
		f.mu.Unlock()
		delta(t, s, m, 5, 10, "y")
		time.Sleep(mirrorEvery * 3)
		equal(t, f.mirrored(m).Text, "xxxxxxxxxxy")
		puts = f.putCount()
		time.Sleep(time.Minute)
		equal(t, f.putCount(), puts) // nothing is written that is there
	})
}

// TestMirrorAfterTheEnd checks that a text does not stay in the mirror if it is written there while
// its message is being closed, or before this node is notified of it.
func TestMirrorAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s, m := serviceOn(f, f.node(t, true)), f.open("m", time.Now())
		f.beforePut = func() { f.Ended("~s", "m", message.StatusRecalled) }
		delta(t, s, m, 5, 0, "secret")
		time.Sleep(time.Second)
		equal(t, f.putCount(), 1)
		equal(t, f.mirrored(m).Text, "")

		f.beforePut = nil
		late := f.open("late", time.Now())
		delta(t, s, late, 5, 0, "secret")
		time.Sleep(time.Second)
		equal(t, f.mirrored(late).Text, "secret")
		f.setAway(errors.New("away"))
		f.Ended("~s", "late", message.StatusRecalled)
		time.Sleep(time.Second)
		f.setAway(nil)
		time.Sleep(time.Second)
		equal(t, f.mirrored(late).Text, "")
	})
}

// TestEndedMessage checks that a generator is told that its message is no longer open: at once if
// this node knows, within checkEvery if it was not told, and at its first delta.
func TestEndedMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s := serviceOn(f, f.node(t, true))
		told, unaware, before, gone := f.open("told", time.Now()), f.open("unaware", time.Now()), f.open("before", time.Now()), f.open("gone", time.Now())
		for _, m := range []target{told, unaware, gone} {
			equal(t, delta(t, s, m, 5, 0, "x"), "1 -1")
		}
		_, _, err := s.Close(bot(t), message.CloseRequest{Kind: message.KindComplete, ChannelID: "~s", MsgID: "told", Content: "x"})
		if err != nil {
			t.Fatal(err)
		}
		f.set(unaware, message.StatusFailed)
		f.set(before, message.StatusRecalled)
		f.mu.Lock()
		delete(f.messages, gone)
		f.mu.Unlock()
		equal(t, delta(t, s, told, 5, 1, "y"), "1 3")
		equal(t, delta(t, s, before, 5, 0, "y"), "0 2")
		time.Sleep(checkEvery + 2*time.Second)
		equal(t, delta(t, s, unaware, 5, 1, "y"), "1 5")
		equal(t, delta(t, s, gone, 5, 1, "y"), "1 2")
		equal(t, f.mirrored(gone).Text, "")
		deleted := f.open("deleted", time.Now())
		equal(t, delta(t, s, deleted, 5, 0, "z"), "1 -1")
		time.Sleep(mirrorEvery * 2)
		s.Deleted(t.Context(), "s")
		equal(t, delta(t, s, deleted, 5, 1, "z"), "1 2")
		equal(t, f.mirrored(deleted).Text, "")
		equal(t, f.texts(), "5@0:x 5@0:x 5@0:x 5@0:z")
	})
}

// TestCancel checks that a cancelled message gets the text of the node whose generator has the
// highest attempt, and that no delta is taken meanwhile.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, second int64 // the attempts on two nodes
		mirror        bool
		want          string
	}{
		"the second node has the later attempt": {5, 6, false, "second"},
		"the first node has the later attempt":  {6, 5, false, "first one"},
		"only the mirror has a text":            {0, 0, true, "mirrored"},
		"nobody has a text":                     {0, 0, false, "begun"},
	} {
		f := newFleet()
		a, b := serviceOn(f, f.node(t, false)), serviceOn(f, f.node(t, false))
		m := f.open("m", time.Now())
		if tc.first > 0 {
			equal(t, delta(t, a, m, tc.first, 0, "first one"), "9 -1")
			equal(t, delta(t, b, m, tc.second, 0, "second"), "6 -1")
		}
		if tc.mirror {
			f.mirror[m] = &message.OpenText{MsgID: "m", Attempt: 5, Text: "mirrored"}
		}
		_, got, err := b.Cancel(bot(t), message.CloseRequest{ChannelID: "~s", MsgID: "m"})
		if err != nil || got.Content != tc.want || got.Status != message.StatusCancelled {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for _, s := range []*Service{a, b} {
			if got := delta(t, s, m, 7, 0, "x"); !strings.HasSuffix(got, " 4") {
				t.Errorf("%s: a delta got %s", name, got)
			}
		}
	}
}

// TestFrozenText checks that no delta is taken on any node while a message is being cancelled, and
// that the text goes on if that failed.
func TestFrozenText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		g := f.node(t, true)
		s, other, m := serviceOn(f, g), serviceOn(f, f.node(t, true)), f.open("m", time.Now())
		delta(t, s, m, 5, 0, "x")
		time.Sleep(mirrorEvery * 2)
		text, ok := f.Freeze(t.Context(), "~s", "m")
		equal(t, fmt.Sprint(text.Text, " ", ok), "x true")
		equal(t, delta(t, s, m, 5, 1, "y"), "STORE_UNAVAILABLE  0")
		equal(t, delta(t, other, m, 5, 1, "y"), "STORE_UNAVAILABLE  0")
		time.Sleep(freezeFor + time.Second)
		equal(t, delta(t, other, m, 5, 1, "y"), "2 -1")
		equal(t, delta(t, s, m, 5, 1, "y"), "2 -1")
		g.Freeze("~s", "m")
		g.Ended("~s", "m", message.StatusFailed)
		equal(t, delta(t, s, m, 5, 1, "y"), "2 5")
		g.Freeze("~s", "m")
		time.Sleep(freezeFor + time.Second)
		equal(t, delta(t, s, m, 5, 1, "y"), "2 5") // it stays over
	})
}

func TestGenerationLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		all := f.node(t, true)
		g := all
		m := func(i int) target { return f.open(fmt.Sprint("m", i), time.Now()) }
		d := func(to target, trusted bool) error {
			_, _, err := g.append(t.Context(), to, &message.Delta{MsgID: to.msgID, Attempt: 1, Text: "x"}, "ann", trusted)
			return err
		}
		for i := range maxPerSubject {
			if err := d(m(i), false); err != nil {
				t.Fatal(err)
			}
		}
		if err := d(m(100), false); !fault.Is(err, fault.LimitExceeded) {
			t.Errorf("%v", err)
		}
		if err := d(m(0), false); err != nil {
			t.Errorf("one that is there: %v", err)
		}
		if err := d(m(101), true); err != nil {
			t.Errorf("with manage: %v", err)
		}
		g = NewGenerations(GenerationsConfig{Bus: f, Mirror: f, Log: f, MaxBytes: textCost})
		if err := d(m(102), true); err != nil {
			t.Error(err)
		}
		if err := d(m(103), true); !fault.Is(err, fault.NodeFull) {
			t.Errorf("beyond the bytes of the node: %v", err)
		}
		// Texts that grow are counted, users have half of the room, and a close makes room.
		g = NewGenerations(GenerationsConfig{Bus: f, Mirror: f, Log: f, MaxBytes: 8 << 10, MaxText: 8 << 10})
		grow := func(to target, trusted bool, n int) error {
			_, _, err := g.append(t.Context(), to, &message.Delta{MsgID: to.msgID, Attempt: 2, Text: strings.Repeat("x", n)}, "ann", trusted)
			return err
		}
		if err := grow(m(104), false, 3<<10); err != nil {
			t.Error(err)
		}
		if err := grow(m(104), false, 5<<10); !fault.Is(err, fault.NodeFull) {
			t.Errorf("beyond the half: %v", err)
		}
		if err := grow(m(104), true, 5<<10); err != nil {
			t.Error(err)
		}
		if err := grow(m(105), true, 4<<10); !fault.Is(err, fault.NodeFull) {
			t.Errorf("beyond the whole: %v", err)
		}
		g.Ended("~s", "m104", message.StatusComplete)
		equal(t, g.bytes.Load(), 0)
		if err := grow(m(105), true, 4<<10); err != nil {
			t.Errorf("after a close: %v", err)
		}
		g = all
		time.Sleep(g.cfg.Idle + 2*time.Second)
		if err := d(m(100), false); err != nil {
			t.Errorf("after all were idle: %v", err)
		}
		if err := d(m(0), false); err != nil {
			t.Errorf("one that was idle: %v", err)
		}
		// Messages that are closed do not count.
		for i := 1000; i < 1000+2*maxPerSubject; i++ {
			if err := d(m(i), false); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			g.Ended("~s", fmt.Sprint("m", i), message.StatusComplete)
		}
	})
}

// TestAppendOpens checks the tokens of open messages: a repeat gets a higher attempt, also if the
// clock of its node is behind.
func TestAppendOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		g := f.node(t, true)
		m := f.open("m", time.Now())
		attempt := g.begin(t.Context(), m, 7, "bot", true, true)
		equal(t, attempt, time.Now().UnixMicro())
		time.Sleep(mirrorEvery * 2)
		equal(t, f.mirrored(m).Attempt, attempt) // a message without a delta is known to be alive
		f.mu.Lock()
		f.mirror[m].Attempt += 1 << 40
		f.mu.Unlock()
		other := f.node(t, true)
		equal(t, other.begin(t.Context(), m, 7, "bot", true, false), attempt+1<<40+1)
		time.Sleep(mirrorEvery * 2)
		equal(t, f.mirrored(m).Attempt, attempt+1<<40+1) // so is one that was opened again
		f.setAway(errors.New("away"))
		if again := other.begin(t.Context(), m, 7, "bot", true, false); again <= attempt {
			t.Errorf("%d after %d", again, attempt)
		}
	})
}

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	f := newFleet()
	lifecycletest.Stress[*Generations](t, func(*testing.T) *Generations {
		return NewGenerations(GenerationsConfig{Bus: f, Mirror: f, Log: f})
	})
	lifecycletest.Stress[*Closer](t, func(t *testing.T) *Closer {
		t.Helper()
		return NewCloser(CloserConfig{Generations: f.node(t, false), Peers: f, Writer: f, Mirror: f, Log: f, Shards: 1})
	})
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
