package consume

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

func testStream(expires time.Time) *Stream {
	return newStream(stream.Identity{ID: "s", Subject: "alice", Expires: expires}, "s", time.Second, &unsent{room: func() {}})
}

func delivery(id, bytes int) Delivery {
	return Delivery{Token: Token{"t", 0, 1, id}, Body: make([]byte, bytes)}
}

// TestStreamFrames: lost deliveries come first, and a frame of deliveries is bounded in count and
// bytes; a larger delivery comes alone.
func TestStreamFrames(t *testing.T) {
	t.Parallel()
	s := testStream(time.Time{})
	for i := range 1500 {
		s.deliver([]Delivery{delivery(i+1, 1)})
	}
	s.deliver([]Delivery{delivery(3000, 700<<10), delivery(3001, 700<<10), delivery(3002, 2<<20)})
	s.lose(Lost{[]Token{{"t", 0, 9, 1}, {"t", 0, 1, 1}}, CauseAckTimeout})
	f, err := s.Next(t.Context())
	if err != nil || f.Lost == nil || len(f.Lost.Tokens) != 1 || f.Lost.Tokens[0].ID != 9 {
		t.Fatalf("first frame: %+v, %v; only the delivery that was sent is told as lost", f, err)
	}
	for i, want := range []int{1000, 500, 1, 1} {
		f, err := s.Next(t.Context())
		if i == 1 {
			want = 499 + 1 // 1 was lost before it was sent; the first large one fits in
		}
		if err != nil || len(f.Deliveries) != want {
			t.Fatalf("frame %d has %d deliveries, %v; want %d", i, len(f.Deliveries), err, want)
		}
	}
}

// TestStreamEnds: what ends a stream comes before what is queued, and a stream that ended takes
// nothing.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testStream(time.Now().Add(1500 * time.Millisecond))
		f, err := s.Next(t.Context())
		if err != nil || f.Heartbeat == nil || f.Heartbeat.Unconfirmed != 0 {
			t.Fatalf("after a second: %+v, %v", f, err)
		}
		s.renew(Renewal{Expires: time.Now().Add(10 * time.Second)})
		if f, err = s.Next(t.Context()); err != nil || f.Heartbeat == nil {
			t.Fatalf("a renewed token: %+v, %v", f, err)
		}
		s.renew(Renewal{Expires: time.Now()})
		s.deliver([]Delivery{delivery(1, 1), delivery(2, 1)})
		if _, err = s.Next(t.Context()); !fault.Is(err, fault.TokenExpired) {
			t.Fatalf("after the token expired: %v", err)
		}
		if s.deliver([]Delivery{delivery(3, 1)}) {
			t.Error("a stream that ended takes deliveries")
		}
		if unsent := s.takeBack(); len(unsent) != 2 {
			t.Errorf("%d deliveries were not sent; want 2", len(unsent))
		}
	})
	s := testStream(time.Time{})
	s.end(errLeft)
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("a session that left: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testStream(time.Time{}).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

// TestStreamAssigns: of two assignments of a topic only the later one is sent.
func TestStreamAssigns(t *testing.T) {
	t.Parallel()
	s := testStream(time.Time{})
	s.assign(Assignment{"a", []int{1}, 8})
	s.assign(Assignment{"b", []int{2}, 8})
	s.assign(Assignment{"a", []int{1, 3}, 8})
	for _, want := range []int{2, 1} {
		f, err := s.Next(t.Context())
		if err != nil || f.Assignment == nil || len(f.Assignment.Partitions) != want {
			t.Errorf("%+v, %v; want %d partitions", f.Assignment, err, want)
		}
	}
}
