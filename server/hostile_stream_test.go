package server_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// detailOf returns Parley's detail of an error.
func detailOf(t *testing.T, err error) *parleyv1.ErrorDetail {
	t.Helper()
	var wire *connect.Error
	if !errors.As(err, &wire) {
		t.Fatalf("the end is %v", err)
	}
	for _, d := range wire.Details() {
		if m, err := d.Value(); err == nil {
			if detail, ok := m.(*parleyv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	t.Fatalf("no detail comes with %v", err)
	return nil
}

// options are the options with which a generated client uses each protocol and encoding.
var options = map[string][]connect.ClientOption{
	"connect-json": {connect.WithProtoJSON()}, "connect-proto": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
}

// badMetadata returns message metadata of n entries whose keys are invalid.
func badMetadata(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m["."+strconv.Itoa(i)] = ""
	}
	return m
}

// TestHostileSubscriptionLimits checks that too many channels for a stream, and too many streams
// for a subject, are refused and leave nothing behind.
func TestHostileSubscriptionLimits(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, func(c *config.Config) { c.Limits.StreamsPerSubject = 3 })
	many := func(n int) *parleyv1.SubscribeRequest {
		r := &parleyv1.SubscribeRequest{}
		for i := range n {
			r.Channels = append(r.Channels, live("many-"+strconv.Itoa(i)))
		}
		return r
	}
	exceeded := want{code: "resource_exhausted", reason: "LIMIT_EXCEEDED", field: "channels", limit: 500}
	elements := want{code: "resource_exhausted", reason: "TOO_LARGE", limit: 50_000}
	// One message of a batch with 900 kB of metadata entries.
	metadataItem := "\x0a\xa0\xf7\x36" + strings.Repeat("\x2a\x00", 450_000)
	g.run([]line{
		{name: "501 channels", procedure: subscribing, message: many(501), want: exceeded},
		{name: "10,001 channels", procedure: subscribing, message: many(10_001), want: exceeded},
		{name: "400,000 channels", procedure: subscribing, binary: strings.Repeat("\x0a\x03\x0a\x01a", 400_000), json: `{"channels":[{}` + strings.Repeat(",{}", 400_000) + "]}", want: elements},
		{name: "a million positions of nothing", procedure: subscribing, binary: strings.Repeat("\x0a\x00", 1_000_000), want: elements},
		{name: "a million channels of nothing to leave", procedure: updating, binary: "\x0a\x01s" + strings.Repeat("\x1a\x00", 1_000_000), want: refused("resource_exhausted")},
		{name: "a million messages of nothing", procedure: sendMessages, binary: strings.Repeat("\x0a\x00", 1_000_000), json: `{"messages":[{}` + strings.Repeat(",{}", 600_000) + "]}", want: refused("resource_exhausted")},
		{name: "metadata of nothing in a message of a batch", procedure: sendMessages, binary: metadataItem, want: refused("resource_exhausted")},
		{name: "a million of what nobody knows", json: `{"x":[0` + strings.Repeat(",0", 250_000) + "]}", want: refused("resource_exhausted")},
		{name: "49,000 channels of nothing", procedure: subscribing, binary: strings.Repeat("\x0a\x00", 49_000), json: `{"channels":[{}` + strings.Repeat(",{}", 24_000) + "]}", want: exceeded},
		{name: "as many bad metadata as fit", message: sent(func(m *parleyv1.SendMessageRequest) { m.Metadata = badMetadata(12_000) }), want: over("metadata", 16)},
	})

	for name, opts := range options {
		token := g.Mint("busy-"+name, ident.Subscribe)
		c := g.Client(token, opts...)
		first := subscribe(t, c, live("room"))
		for range 2 {
			subscribe(t, c, live("room"))
		}
		l := line{procedure: subscribing, message: liveOnly("room")}
		for i := range dialects {
			a := g.call(&l, &dialects[i], token)
			g.judge(name+", "+dialects[i].name, a, want{code: "resource_exhausted", reason: "NODE_FULL", limit: 3})
		}
		// Too many channels change nothing on a live stream.
		update := &parleyv1.UpdateSubscriptionRequest{StreamId: first.streamID, Add: many(500).GetChannels()}
		_, err := c.UpdateSubscription(t.Context(), update)
		if d := detailOf(t, err); connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetLimit() != 500 {
			t.Errorf("%s: 501 channels on a stream: %v, %v", name, err, d)
		}
		subscribe(t, g.Client(g.Mint("calm-"+name, ident.Subscribe), opts...), live("room"))
		first.cancel()
		<-first.ended
		testkit.Eventually(t, 10*time.Second, func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{})
			if err == nil && !s.Receive() {
				err = s.Err()
			}
			return err
		})
	}
}

// TestHostilePositionsCauseGaps checks that a position from which a stream can't continue, of
// another epoch or beyond the log's end, causes an explicit gap in that channel, and that the
// stream's other channels continue.
func TestHostilePositionsCauseGaps(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for name, opts := range options {
		c := g.Client(g.Token, opts...)
		good, bad := "good-"+name, "bad-"+name
		for range 3 {
			send(t, c, good, "x")
			send(t, c, bad, "x")
		}
		for reason, position := range map[parleyv1.GapReason]*parleyv1.ChannelPosition{
			parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED: {ChannelId: bad, AfterSeq: proto.Int64(2), Epoch: "an-epoch-of-old"},
			parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG:  from(bad, math.MaxInt64),
		} {
			s := subscribe(t, c, position, from(good, 0))
			s.awaitGap(reason)
			s.await(good, 0, 3)
			seq := send(t, c, bad, "after the gap").GetSeq()
			testkit.Eventually(t, 10*time.Second, func() error {
				if got := s.entries(bad); len(got) == 0 || got[len(got)-1].GetSeq() != seq {
					return errors.New("the channel does not go on after its gap")
				}
				return nil
			})
			s.mu.Lock()
			for _, e := range s.events {
				if e.GetChannelId() == bad && e.GetState().GetRecovered() {
					t.Errorf("%s, %v: recovered is true, want false", name, reason)
				}
			}
			s.mu.Unlock()
			s.cancel()
			<-s.ended
		}
	}
}

// unread opens a stream, reads its frames up to the channel's state, and returns it. The client
// buffers little, so that the server soon can't write what is not read.
func (g *target) unread(opts []connect.ClientOption, channel string) *connect.ServerStreamForClient[parleyv1.SubscribeResponse] {
	g.t.Helper()
	transport := &http.Transport{
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	g.t.Cleanup(transport.CloseIdleConnections)
	c := parleyv1connect.NewMessageServiceClient(&http.Client{Transport: transport}, g.URL, opts...)
	ctx, call := connect.NewClientContext(g.t.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+g.Token)
	s, err := c.Subscribe(ctx, liveOnly(channel))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = s.Close() })
	for ready := false; !ready; {
		if !s.Receive() {
			g.t.Fatal(s.Err())
		}
		ready = slices.ContainsFunc(s.Msg().GetEvents().GetEvents(), func(e *parleyv1.ChannelEvent) bool { return e.GetState() != nil })
	}
	return s
}

// TestHostileStalledSubscriberDoesNotHoldUpAStop checks that a server with a subscriber that does
// not read drains soon, and without an error.
func TestHostileStalledSubscriberDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	c := g.Client(g.Token)
	_ = g.unread(nil, "slow")
	other := subscribe(t, c, from("slow", 0))
	other.awaitState("slow")
	for i := range 24 {
		send(t, c, "slow", strings.Repeat("x", 30<<10))
		other.await("slow", 0, i+1)
	}
	began := time.Now()
	g.Stop()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// TestHostileStalledSubscriberIsDisconnected checks that the stream of a subscriber that stops
// reading ends with an error that names its last sent position, and that everything before it
// arrived without gaps. Other subscribers do not wait.
func TestHostileStalledSubscriberIsDisconnected(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.StreamQueueBytes, c.Limits.StreamQueueEvents = 256<<10, 8 })
	for name, opts := range options {
		channel := "slow-" + name
		c := g.Client(g.Token, opts...)
		slow := g.unread(opts, channel)
		other := subscribe(t, c, from(channel, 0))
		other.awaitState(channel)
		const messages = 24
		text := strings.Repeat("x", 30<<10)
		for i := range messages {
			send(t, c, channel, text)
			other.await(channel, 0, i+1)
		}
		var last int64
		for slow.Receive() {
			for _, e := range slow.Msg().GetEvents().GetEvents() {
				if e.GetSent() == nil || e.GetSeq() != last+1 {
					t.Errorf("%s: entry after %d is %d", name, last, e.GetSeq())
				}
				last = e.GetSeq()
			}
		}
		err := slow.Err()
		d := detailOf(t, err)
		if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER || !d.GetRetryable() {
			t.Errorf("%s: stream ended with %v, %v", name, err, d)
		}
		if p := d.GetPositions(); len(p) != 1 || p[0].GetChannelId() != channel || p[0].GetSeq() != last || p[0].GetEpoch() == "" || last == messages {
			t.Errorf("%s: last position %v, read up to %d of %d", name, p, last, messages)
		}
		again := subscribe(t, c, from(channel, last))
		again.await(channel, last, messages-int(last))
		if lines := g.log.failures(d.GetRequestId()); len(lines) != 1 || lines[0]["code"] != "resource_exhausted" {
			t.Errorf("%s: logged %v", name, lines)
		}
	}
}
