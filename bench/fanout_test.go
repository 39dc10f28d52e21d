package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

func TestFanout(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Payload = 20_000 // a message does not fit into one HTTP/2 frame
	figures := measure(t, "fanout", options)
	if diff := cmp.Diff([]string{"fanout/saturated/cpu", "fanout/saturated/rate", "fanout/paced/cpu", "fanout/paced/p99", "fanout/paced/p50"}, ids(figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures[1:] { // so short a run may take less than the hundredth of a second that CPU time counts in
		if f.Unit != "us" && (f.Value.Median <= 0 || f.Floor.Median <= 0) {
			t.Errorf("%s: %v against %v", f.Name, f.Value, f.Floor)
		}
	}
	if f := figures[3]; f.Unit != "ms" || f.Value.Median > 5000 {
		t.Errorf("p99: %v %s", f.Value, f.Unit)
	}
	if got := figures[0].Setup; got["connections"] != "10" || got["payload"] != "20000 bytes" || got["rounds"] != "1" {
		t.Errorf("setup: %v", got)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	figures := measure(t, "idle", tiny(t))
	if diff := cmp.Diff([]string{"idle/memory"}, ids(figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if figures[0].Floor == nil || figures[0].BarMet == nil {
		t.Errorf("figure: %+v", figures[0])
	}
}

func TestTelemetry(t *testing.T) {
	t.Parallel()
	figures := measure(t, "telemetry", tiny(t)) // fails if no spans arrive
	if diff := cmp.Diff([]string{"telemetry/cpu"}, ids(figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func TestReconnect(t *testing.T) {
	t.Parallel()
	figures := measure(t, "reconnect", tiny(t)) // fails on a hole
	if diff := cmp.Diff([]string{"reconnect/time"}, ids(figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	f := figures[0]
	if f.Value.Median <= 0 || f.Value.Median > 60 {
		t.Errorf("back after %v s", f.Value)
	}
	var entries, heads int
	note := f.Notes[2]
	_, counts, _ := strings.Cut(note, "over all rounds: ")
	if _, err := fmt.Sscanf(counts, "%d of entries, %d of where a log ends; not counted:", &entries, &heads); err != nil {
		t.Fatalf("%q: %v", note, err)
	}
	if f.BarMet == nil || *f.BarMet && entries+heads > 0 {
		t.Errorf("no read of the store is said to be met: %v, with %s", f.BarMet, note)
	}
}

// crooked is a server that makes one error on each stream, after the first entry.
type crooked struct {
	parleyv1connect.UnimplementedMessageServiceHandler

	events func() []*parleyv1.ChannelEvent
	sent   atomic.Int64
}

func entry(seq int64) *parleyv1.ChannelEvent {
	return &parleyv1.ChannelEvent{Seq: seq, FromSeq: seq, Event: &parleyv1.ChannelEvent_Sent{Sent: &parleyv1.ChannelMessage{Seq: seq, Content: "x"}}}
}

// batch returns a frame with events.
func batch(events ...*parleyv1.ChannelEvent) *parleyv1.SubscribeResponse {
	return &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{Events: events}}}
}

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (c *crooked) Subscribe(
	ctx context.Context, _ *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	state := &parleyv1.ChannelEvent{Event: &parleyv1.ChannelEvent_State{State: &parleyv1.ChannelState{}}}
	if err := stream.Send(batch(state)); err != nil {
		return err
	}
	events := c.events()
	if events == nil {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("too slow"))
	}
	if err := stream.Send(batch(append([]*parleyv1.ChannelEvent{entry(1)}, events...)...)); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// SendMessages implements parleyv1connect.MessageServiceHandler.
func (c *crooked) SendMessages(context.Context, *parleyv1.SendMessagesRequest) (*parleyv1.SendMessagesResponse, error) {
	c.sent.Add(1)
	return &parleyv1.SendMessagesResponse{}, nil
}

// TestFanoutIsChecked checks that a measurement fails if the server loses, repeats or refuses an
// event.
func TestFanoutIsChecked(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		events func() []*parleyv1.ChannelEvent
		want   string
	}{
		"lost": {func() []*parleyv1.ChannelEvent { return []*parleyv1.ChannelEvent{entry(3)} }, "entry 3 came after 1"},
		"not covered": {func() []*parleyv1.ChannelEvent {
			e := entry(4)
			e.FromSeq = 3
			return []*parleyv1.ChannelEvent{e}
		}, "entry 4 came after 1"},
		"repeated": {func() []*parleyv1.ChannelEvent { return []*parleyv1.ChannelEvent{entry(1)} }, "entry 1 came after 1"},
		"gap": {func() []*parleyv1.ChannelEvent {
			return []*parleyv1.ChannelEvent{{Event: &parleyv1.ChannelEvent_Gap{Gap: &parleyv1.ChannelGap{}}}}
		}, "gap"},
		"ended": {func() []*parleyv1.ChannelEvent { return nil }, "too slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, &crooked{events: one.events})
			options := tiny(t)
			options.Addrs, options.Ops, options.Token = []string{url}, []string{url}, "any"
			options.Duration = 10 * time.Second // the run must fail earlier
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := bench.Run(ctx, area(t, "fanout"), options, &collector{})
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("error: %v, want one with %q", err, one.want)
			}
		})
	}
}

// silent is a server whose messages do not contain their time of sending.
type silent struct {
	parleyv1connect.UnimplementedMessageServiceHandler
}

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (silent) Subscribe(
	ctx context.Context, _ *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	event := &parleyv1.ChannelEvent{Event: &parleyv1.ChannelEvent_State{State: &parleyv1.ChannelState{}}}
	for seq := int64(1); ctx.Err() == nil; seq++ {
		if err := stream.Send(batch(event)); err != nil {
			return err
		}
		event = entry(seq)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// SendMessage implements parleyv1connect.MessageServiceHandler.
func (silent) SendMessage(context.Context, *parleyv1.SendMessageRequest) (*parleyv1.SendMessageResponse, error) {
	return &parleyv1.SendMessageResponse{}, nil
}

// SendMessages implements parleyv1connect.MessageServiceHandler.
func (silent) SendMessages(context.Context, *parleyv1.SendMessagesRequest) (*parleyv1.SendMessagesResponse, error) {
	return &parleyv1.SendMessagesResponse{}, nil
}

// TestFanoutRequiresLatencies checks that a paced run fails if no message has its time of sending.
func TestFanoutRequiresLatencies(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Addrs, options.Token = []string{serve(t, silent{})}, "any"
	options.Ops = options.Addrs
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := bench.Run(ctx, area(t, "fanout"), options, &collector{})
	if err == nil || !strings.Contains(err.Error(), "no latency") {
		t.Errorf("error: %v", err)
	}
}

// serve runs a server for a handler and returns its URL. The server always reports one second of
// CPU time.
func serve(t *testing.T, handler parleyv1connect.MessageServiceHandler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewMessageServiceHandler(handler))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1\n"))
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}
