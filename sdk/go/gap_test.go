package parley_test

import (
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestGapsAreDelivered subscribes from positions from which the server cannot continue: expired, of
// another epoch, or beyond the log. The program must get an EventGap, and all channels must
// continue.
func TestGapsAreDelivered(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		lose   func(s *parleytest.Server)
		from   parley.Position
		reason parleyv1.GapReason
		to     int64
	}{
		"history gone": {
			func(s *parleytest.Server) { s.Trim("room", 4) },
			parley.Position{ChannelID: "room", Seq: 1},
			parleyv1.GapReason_GAP_REASON_HISTORY_GONE, 3,
		},
		"epoch changed": {
			func(s *parleytest.Server) { s.Restore("room", "epoch-2", 4) },
			parley.Position{ChannelID: "room", Seq: 2, Epoch: "epoch-1"},
			parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED, 4,
		},
		"ahead of the log": {
			func(*parleytest.Server) {},
			parley.Position{ChannelID: "room", Seq: 50, Epoch: "epoch-1"},
			parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG, 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "room", 6)
			one.lose(s)
			sub := subscribe(t, newClient(t, s.Addr()), parley.After(one.from), parley.FromStart("other"))
			e := nextEvent(t, sub)
			if e.Kind != parley.EventGap || e.Gap.GetReason() != one.reason || e.Seq != one.to || e.Gap.GetAfterSeq() != one.from.Seq {
				t.Fatalf("got %s %+v, want the gap up to %d", e.Kind, e.Gap, one.to)
			}
			if p, ok := sub.Position("room"); !ok || p.Seq != one.to || p.Epoch != e.Gap.GetEpoch() {
				t.Errorf("position after the gap: %+v", p)
			}
			next := one.to + 1
			for int64(len(s.Contents("room"))) < 8 {
				s.Post("room", "bob", "after the gap")
			}
			wantEntries(t, sub, "room", next, 8)
			s.Post("other", "bob", "elsewhere")
			wantEntries(t, sub, "other", 1, 1)
		})
	}
}

// TestEventCoversSeveralEntries makes the server send one event for several entries, also if the
// client has received some of them. The event must be delivered, and missing entries before it must
// still be detected.
func TestEventCoversSeveralEntries(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 6)
	s.Cover("room", 2, 4)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	next := func(from, to int64) {
		t.Helper()
		if e := nextEvent(t, sub); e.Kind != parley.EventSent || e.FromSeq != from || e.Seq != to {
			t.Fatalf("got %s of the entries %d to %d, want %d to %d", e.Kind, e.FromSeq, e.Seq, from, to)
		}
	}
	next(1, 1)
	next(2, 4)
	next(5, 5)
	next(6, 6)
	s.Cover("room", 6, 8) // entry 6 has come already
	s.EndStreams(nil)
	nextEvent(t, sub, parley.EventChannelState)
	post(s, "room", 3)
	next(6, 8)
	next(9, 9)
	if p, _ := sub.Position("room"); p.Seq != 9 {
		t.Errorf("position %+v", p)
	}
	// Missing entries before an event that covers several entries must be detected too.
	s.Cover("room", 12, 13)
	s.Skip("room", 11, 1<<30)
	s.Post("room", "bob", "10")
	next(10, 10)
	post(s, "room", 3)
	if e := nextEvent(t, sub); e.Kind != parley.EventGap || e.Gap.GetAfterSeq() != 10 || e.Gap.GetToSeq() != 11 {
		t.Fatalf("got %s %+v, want a gap of entry 11", e.Kind, e.Gap)
	}
	next(12, 13)
}

// TestGapInTheMiddle restores an older state of the log with another epoch while the subscription
// is disconnected. It must report a gap and continue in the restored log.
func TestGapInTheMiddle(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 5)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 5)
	s.Kill()
	s.Restore("room", "epoch-2", 2)
	s.Restart()
	if e := nextEvent(t, sub); e.Kind != parley.EventGap || e.Gap.GetReason() != parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED {
		t.Fatalf("got %s, want the gap", e.Kind)
	}
	s.Post("room", "bob", "new life")
	wantEntries(t, sub, "room", 3, 3)
}

// TestSkippedEntries makes a server skip entries. The subscription must reconnect for them, and
// report a gap after several attempts.
func TestSkippedEntries(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 6)
	s.Skip("room", 3, 2)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 6)
	post(s, "room", 4)
	wantEntries(t, sub, "room", 7, 10)
	s.Skip("room", 12, 1_000_000)
	post(s, "room", 4)
	wantEntries(t, sub, "room", 11, 11)
	if e := nextEvent(t, sub); e.Kind != parley.EventGap || e.Gap.GetAfterSeq() != 11 || e.Gap.GetToSeq() != 12 {
		t.Fatalf("got %s %+v, want a gap of entry 12", e.Kind, e.Gap)
	}
	wantEntries(t, sub, "room", 13, 14)
}
