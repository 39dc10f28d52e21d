package bench_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	figures := measure(t, "sessions", tiny(t))
	want := []string{
		"sessions/append/rate", "sessions/append-slow/rate", "sessions/append-slow/p99",
		"sessions/append-stopped/rate", "sessions/append-stopped/p99",
	}
	if diff := cmp.Diff(want, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Value.Median <= 0 || f.Floor.Median <= 0 {
			t.Errorf("%s: %v against %v", f.ID, f.Value, f.Floor)
		}
	}
}

func TestSessionLists(t *testing.T) {
	t.Parallel()
	figures := measure(t, "sessions-list", tiny(t))
	if diff := cmp.Diff([]string{"sessions-list/cpu", "sessions-list/rate", "sessions-list/p99"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	var cached, stored int
	note := figures[0].Notes[0]
	if _, err := fmt.Sscanf(note, "%d pages came from the cache, %d from the store", &cached, &stored); err != nil {
		t.Fatalf("%q: %v", note, err)
	}
	if cached <= stored {
		t.Errorf("pages were not listed from the cache: %s", note)
	}
}

func TestDeltas(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Duration = time.Second
	figures := measure(t, "sessions-deltas", options)
	var want []string
	for _, n := range []int{1, 10, 1000} {
		for _, quantity := range []string{"cpu", "p99", "p50"} {
			want = append(want, fmt.Sprintf("sessions-deltas/%d/%s", n, quantity))
		}
	}
	if diff := cmp.Diff(want, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Unit == "ms" && f.Value.Median <= 0 {
			t.Errorf("%s: %v", f.ID, f.Value)
		}
	}
}

func TestGenerations(t *testing.T) {
	t.Parallel()
	figures := measure(t, "sessions-generations", tiny(t))
	if diff := cmp.Diff([]string{"sessions-generations/held"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
}

// forgetful is a server that sends the second piece of a text and not the first.
type forgetful struct{ silent }

// AppendSessionMessage implements parleyv1connect.MessageServiceHandler.
func (forgetful) AppendSessionMessage(context.Context, *parleyv1.AppendSessionMessageRequest) (*parleyv1.AppendSessionMessageResponse, error) {
	return &parleyv1.AppendSessionMessageResponse{MsgId: "m", AppendToken: "t"}, nil
}

// AppendSessionDelta implements parleyv1connect.MessageServiceHandler.
func (forgetful) AppendSessionDelta(context.Context, *parleyv1.AppendSessionDeltaRequest) (*parleyv1.AppendSessionDeltaResponse, error) {
	return &parleyv1.AppendSessionDeltaResponse{}, nil
}

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (forgetful) Subscribe(
	ctx context.Context, _ *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	state := &parleyv1.ChannelEvent{Event: &parleyv1.ChannelEvent_State{State: &parleyv1.ChannelState{}}}
	delta := &parleyv1.ChannelEvent{Event: &parleyv1.ChannelEvent_Delta{Delta: &parleyv1.MessageDelta{MsgId: "m", Offset: 32, Text: "x"}}}
	if err := stream.Send(batch(state, delta)); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestDeltasAreChecked checks that a measurement fails if a piece of a text is missing.
func TestDeltasAreChecked(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	url := serve(t, forgetful{})
	options.Addrs, options.Ops, options.Token = []string{url}, []string{url}, "any"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := bench.Run(ctx, area(t, "sessions-deltas"), options, &collector{})
	if err == nil || !strings.Contains(err.Error(), "a text continues at 32 after 0 bytes") {
		t.Errorf("error: %v", err)
	}
}
