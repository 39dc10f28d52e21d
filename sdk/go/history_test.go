package parley_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func seqs(t *testing.T, c *parley.Client, opts ...parley.HistoryOption) []int64 {
	t.Helper()
	var got []int64
	for m, err := range c.History(testContext(t), "room", opts...) {
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		got = append(got, m.GetSeq())
	}
	return got
}

func TestHistoryRanges(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for i := range 7 {
		s.Post("room", "bob", fmt.Sprint(i))
	}
	s.FaultTimes(3, "ListMessages", parleytest.Fault{Drop: true})
	c := newClient(t, s.Addr())
	for name, one := range map[string]struct {
		opts []parley.HistoryOption
		want []int64
	}{
		"newest first": {nil, []int64{7, 6, 5, 4, 3, 2, 1}},
		"ascending":    {[]parley.HistoryOption{parley.AfterSeq(0), parley.PageSize(3)}, []int64{1, 2, 3, 4, 5, 6, 7}},
		"after":        {[]parley.HistoryOption{parley.AfterSeq(4), parley.PageSize(2)}, []int64{5, 6, 7}},
		"before":       {[]parley.HistoryOption{parley.BeforeSeq(4), parley.PageSize(2)}, []int64{3, 2, 1}},
		"between":      {[]parley.HistoryOption{parley.AfterSeq(2), parley.BeforeSeq(6), parley.PageSize(2)}, []int64{3, 4, 5}},
		"limited":      {[]parley.HistoryOption{parley.AfterSeq(0), parley.PageSize(2), parley.Limit(3)}, []int64{1, 2, 3}},
		"at the end":   {[]parley.HistoryOption{parley.AfterSeq(7)}, nil},
	} {
		if got := seqs(t, c, one.opts...); !slices.Equal(got, one.want) {
			t.Errorf("%s: %v, want %v", name, got, one.want)
		}
	}
	for _, err := range c.History(testContext(t), "room", parley.AfterSeq(99)) {
		if !errors.Is(err, parley.ErrPositionOutOfRange) {
			t.Errorf("beyond the end: %v", err)
		}
	}
	for range c.History(testContext(t), "room", parley.PageSize(1)) {
		break // Leaving early must not load another page, or panic.
	}
}

// TestHistorySendsMinSeq checks that History requests at least the highest seq that the client has
// received, by any call or event.
func TestHistorySendsMinSeq(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	ctx := testContext(t)
	wantMinSeq := func(after string, want int64) {
		t.Helper()
		seqs(t, c, parley.Limit(1))
		requests := parleytest.RequestsOf[*parleyv1.ListMessagesRequest](s)
		if got := requests[len(requests)-1].GetMinSeq(); got != want {
			t.Errorf("after %s min_seq is %d, want %d", after, got, want)
		}
	}
	wantMinSeq("nothing", 0)
	r, err := c.Send(ctx, "room", "one")
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	wantMinSeq("a send", 1)
	if _, err := c.Edit(ctx, "room", r.MsgID, "two"); err != nil {
		t.Fatalf("edit: %v", err)
	}
	wantMinSeq("an edit", 2)
	if _, err := c.Recall(ctx, "room", r.MsgID); err != nil {
		t.Fatalf("recall: %v", err)
	}
	wantMinSeq("a recall", 3)
	if _, err := c.SendBatch(ctx, outgoing(2, "room")); err != nil {
		t.Fatalf("send batch: %v", err)
	}
	wantMinSeq("a batch", 5)
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	s.Post("room", "bob", "live")
	nextEvent(t, sub)
	wantMinSeq("an event", 6)
	s.Post("room", "bob", "unseen")
	seqs(t, c)
	wantMinSeq("a list", 7)
	for _, req := range parleytest.RequestsOf[*parleyv1.ListMessagesRequest](s) {
		if req.GetChannelId() != "room" {
			t.Errorf("unexpected ListMessages of %s", req.GetChannelId())
		}
	}
}

// TestHistoryPagesKeepQuery checks that the requests for all pages are alike but for the page
// token, even if the log grows meanwhile: the server binds page tokens to the query.
func TestHistoryPagesKeepQuery(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	if _, err := c.SendBatch(testContext(t), outgoing(5, "room")); err != nil {
		t.Fatalf("send batch: %v", err)
	}
	for range c.History(testContext(t), "room", parley.AfterSeq(0), parley.PageSize(2)) {
		s.Post("room", "bob", "more")
		if len(s.Contents("room")) > 12 {
			break
		}
	}
	requests := parleytest.RequestsOf[*parleyv1.ListMessagesRequest](s)
	if len(requests) < 3 {
		t.Fatalf("got %d pages, want more than one", len(requests))
	}
	for _, req := range requests {
		req = proto.CloneOf(req)
		req.PageToken = requests[0].GetPageToken()
		if !proto.Equal(req, requests[0]) {
			t.Errorf("a later page requests %v, the first %v", req, requests[0])
		}
	}
}

// TestHistoryAfterARestore truncates the log to before the client's last seq. The client must
// forget that seq, but only if the epoch has changed.
func TestHistoryAfterARestore(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	if _, err := c.SendBatch(testContext(t), outgoing(5, "room")); err != nil {
		t.Fatalf("send batch: %v", err)
	}
	s.Restore("room", "epoch-1", 3)
	for _, err := range c.History(testContext(t), "room") {
		if !errors.Is(err, parley.ErrPositionOutOfRange) {
			t.Errorf("the log lost entries in the same epoch: got %v", err)
		}
	}
	s.Restore("room", "epoch-2", 3)
	if got, want := seqs(t, c), []int64{3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.FaultTimes(1, "ListMessages", parleytest.Fault{
		Err: parleytest.Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_RESYNC),
	})
	for _, err := range c.History(testContext(t), "room") {
		if !errors.Is(err, parley.ErrResync) {
			t.Errorf("got %v, want ErrResync", err)
		}
	}
}
