package parley_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func outgoing(n int, channels ...string) []parley.Outgoing {
	var out []parley.Outgoing
	for i := range n {
		out = append(out, parley.Outgoing{ChannelID: channels[i%len(channels)], Content: fmt.Sprintf("message %05d", i)})
	}
	return out
}

// TestSendBatchKeepsOrderThroughFaults makes random calls and batch items fail, with and without
// effect. Each channel's log must contain its messages once, in the given order.
func TestSendBatchKeepsOrderThroughFaults(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd, mu := rand.New(rand.NewPCG(seed, 0)), sync.Mutex{}
	s := parleytest.Start(t)
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		mu.Lock()
		defer mu.Unlock()
		item := strings.HasPrefix(method, "SendMessages/")
		unavailable := parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		unknown := parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
		switch {
		case item && rnd.IntN(300) == 0:
			return &parleytest.Fault{Err: unavailable}
		case item && rnd.IntN(300) == 0:
			return &parleytest.Fault{Err: unknown, Applied: true}
		case !item && rnd.IntN(4) == 0:
			return &parleytest.Fault{Drop: true, Applied: rnd.IntN(2) == 0}
		}
		return nil
	})
	messages := outgoing(2000, "a", "b", "c")
	results, err := newClient(t, s.Addr()).SendBatch(testContext(t), messages)
	if err != nil {
		t.Fatalf("send batch: %v", err)
	}
	for i, r := range results {
		if r.Err != nil || r.Receipt == nil || r.Receipt.ChannelID != messages[i].ChannelID {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
	for _, channel := range []string{"a", "b", "c"} {
		var want []string
		for _, m := range messages {
			if m.ChannelID == channel {
				want = append(want, m.Content)
			}
		}
		if got := s.Contents(channel); !slices.Equal(got, want) {
			t.Errorf("channel %s holds %d messages, want %d in order", channel, len(got), len(want))
		}
	}
	ids := make(map[string]string)
	for _, req := range parleytest.RequestsOf[*parleyv1.SendMessagesRequest](s) {
		if n := len(req.GetMessages()); n > 500 {
			t.Errorf("a request with %d items", n)
		}
		for _, m := range req.GetMessages() {
			if before, ok := ids[m.GetContent()]; ok && before != m.GetClientMsgId() {
				t.Fatalf("%q was sent with two ids", m.GetContent())
			}
			ids[m.GetContent()] = m.GetClientMsgId()
		}
	}
}

// TestSendBatchRetriesOnlyFailedItems makes one item fail once. Only it and the later items of its
// channel may be sent again.
func TestSendBatchRetriesOnlyFailedItems(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	failed := false
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "SendMessages/third" || failed {
			return nil
		}
		failed = true
		return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
	})
	messages := outgoing(6, "a", "b")
	messages[2].ClientMsgID = "third"
	if _, err := newClient(t, s.Addr()).SendBatch(testContext(t), messages); err != nil {
		t.Fatalf("send batch: %v", err)
	}
	requests := parleytest.RequestsOf[*parleyv1.SendMessagesRequest](s)
	if len(requests) != 2 {
		t.Fatalf("%d requests, want 2", len(requests))
	}
	var again []string
	for _, m := range requests[1].GetMessages() {
		again = append(again, m.GetContent())
	}
	if want := []string{"message 00002", "message 00004"}; !slices.Equal(again, want) {
		t.Errorf("second request holds %q, want %q", again, want)
	}
}

// TestSendBatchContinuesAfterRefusedItem sends invalid items among valid ones. The invalid ones
// must be refused, and all others must be stored with one request.
func TestSendBatchContinuesAfterRefusedItem(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	messages := outgoing(5, "a")
	messages[1].Content = ""
	messages[3].Content = "broken \xff text"
	results, err := newClient(t, s.Addr()).SendBatch(testContext(t), messages)
	if err != nil {
		t.Fatalf("send batch: %v", err)
	}
	for i, r := range results {
		if bad := i == 1 || i == 3; bad != errors.Is(r.Err, parley.ErrInvalidField) || bad == (r.Receipt != nil) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if got, want := s.Contents("a"), []string{"message 00000", "message 00002", "message 00004"}; !slices.Equal(got, want) {
		t.Errorf("log is %q, want %q", got, want)
	}
	if got := len(s.Requests()); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
}

func TestSendBatchSplitsBySize(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	messages := outgoing(100, "a")
	for i := range messages {
		messages[i].Content += strings.Repeat("x", 60_000)
	}
	if _, err := newClient(t, s.Addr()).SendBatch(testContext(t), messages); err != nil {
		t.Fatalf("send batch: %v", err)
	}
	requests := parleytest.RequestsOf[*parleyv1.SendMessagesRequest](s)
	for _, req := range requests {
		if size := proto.Size(req); size > 2<<20 {
			t.Errorf("a request of %d bytes", size)
		}
	}
	if len(requests) != 4 || len(s.Contents("a")) != 100 {
		t.Errorf("%d requests, %d messages; want 4 and 100", len(requests), len(s.Contents("a")))
	}
}

func TestSendBatchReportsPartialResults(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var faults atomic.Int64
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "SendMessages/third" {
			return nil
		}
		if faults.Add(1) == 2 { // the client has the answer with the first one
			cancel()
		}
		return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
	})
	messages := outgoing(4, "a")
	messages[2].ClientMsgID = "third"
	results, err := newClient(t, s.Addr()).SendBatch(ctx, messages)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, parley.ErrStoreUnavailable) {
		t.Errorf("got %v, want the context's error and the last failure", err)
	}
	for i, r := range results {
		if stored := i < 2; stored != (r.Err == nil) || stored != (r.Receipt != nil) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	s.FaultTimes(1_000_000, "SendMessages", parleytest.Fault{
		Err: parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING),
	})
	results, err = newClient(t, s.Addr()).SendBatch(testContext(t), messages)
	if !errors.Is(err, parley.ErrCapabilityMissing) || !errors.Is(results[3].Err, parley.ErrCapabilityMissing) {
		t.Errorf("a refusal of the whole call: got %v, %+v", err, results)
	}
}
