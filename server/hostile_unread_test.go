package server_test

import (
	wire "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// withheld makes n gRPC calls of a procedure on a connection of its own, on which the server may
// not write a byte of any response's content. It returns the connection.
func (g *target) withheld(procedure string, n int, request proto.Message) net.Conn {
	g.t.Helper()
	body, err := proto.Marshal(request)
	if err != nil {
		g.t.Fatal(err)
	}
	body = append(wire.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	return g.withheldCalls(n, headerBlock(procedure, g.Token), body)
}

// withheldCalls is withheld for calls with any header and body.
func (g *target) withheldCalls(n int, block, body []byte) net.Conn {
	g.t.Helper()
	conn := g.dial()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		g.t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		g.t.Fatal(err)
	}
	for i := range uint32(n) {
		id := 2*i + 1
		err := errors.Join(
			framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}),
			framer.WriteData(id, true, body))
		if err != nil {
			g.t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return conn
}

// TestHostileUnreadResponses checks that responses that a subject does not read have a bound in
// bytes, that only this subject's large responses are dropped then, and that the bytes are
// returned.
func TestHostileUnreadResponses(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.UnreadBytesPerSubject, c.Limits.UnreadBytes = 4<<20, 64<<20 })
	mine, other := g.Client(g.Token), g.Client(g.TokenOf("other"))
	text := strings.Repeat("x", 60<<10)
	sent := send(t, mine, "room", text)
	for range 19 {
		send(t, mine, "room", text)
	}
	list := &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 1000}
	conns := []net.Conn{g.withheld("ListMessages", 20, list)}
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := mine.ListMessages(t.Context(), list)
		d := &parleyv1.ErrorDetail{}
		if err != nil {
			d = detailOf(t, err)
		}
		if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED || d.GetRetryAfter() == nil {
			// The response to this call was in the place of one that is not read. The 20 calls are five
			// times the budget, and as many again do not pass it.
			if conns = append(conns, g.withheld("ListMessages", 1, list)); len(conns) > 20 {
				t.Fatalf("40 unread responses of 1 MB each and no refusal: %v", err)
			}
			return fmt.Errorf("the list of a subject with unread responses: %v, %v", err, d) //nolint:errorlint // err may be nil
		}
		return nil
	})
	if _, err := mine.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "none"}); err != nil {
		t.Errorf("a small response: %v", err)
	}
	if _, err := other.ListMessages(t.Context(), list); err != nil {
		t.Errorf("another subject: %v", err)
	}
	// The response to the edit is as large as that to a get, for which there is no room either.
	get := &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: sent.GetMsgId()}
	conns = append(conns, g.withheld("GetMessage", 50, get))
	testkit.Eventually(t, 20*time.Second, func() error {
		if _, err := mine.GetMessage(t.Context(), get); err == nil {
			return errors.New("a get of a subject with unread responses succeeds")
		}
		return nil
	})
	edited := strings.Repeat("y", 60<<10)
	_, err := mine.EditMessage(t.Context(), &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: sent.GetMsgId(), Content: edited})
	if d := detailOf(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN || !d.GetRetryable() {
		t.Errorf("a write whose response is dropped: %v", err)
	}
	got, err := other.GetMessage(t.Context(), get)
	if err != nil || got.GetMessage().GetContent() != edited {
		t.Errorf("the write was not made: %v", err)
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := mine.ListMessages(t.Context(), list)
		return err
	})
}

// TestHostileUnreadSmallResponses checks that small responses, and errors, that a subject does not
// read have a bound in number.
func TestHostileUnreadSmallResponses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, contentType, procedure string
		body                         []byte
	}{
		{"responses", "application/grpc+proto", "ListChannels", make([]byte, 5)},
		{"errors", "application/proto", "GetChannel", nil}, // without an id
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := attack(t, func(c *config.Config) { c.Limits.UnreadBytesPerSubject, c.Limits.UnreadBytes = 2<<20, 64<<20 })
			mine, other := g.Client(g.Token), g.Client(g.TokenOf("other"))
			// At 32 KiB a call 64 are within the budget.
			conn := g.withheldCalls(100, encodeHeader(requestFieldsOf(c.contentType, c.procedure, g.Token)), c.body)
			list := &parleyv1.ListChannelsRequest{}
			testkit.Eventually(t, 20*time.Second, func() error {
				_, err := mine.ListChannels(t.Context(), list)
				if err == nil {
					return errors.New("a call of a subject with unread responses succeeds")
				}
				if d := detailOf(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED || d.GetRetryAfter() == nil {
					t.Fatal(err)
				}
				return nil
			})
			if _, err := other.ListChannels(t.Context(), list); err != nil {
				t.Errorf("another subject: %v", err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			testkit.Eventually(t, 20*time.Second, func() error {
				_, err := mine.ListChannels(t.Context(), list)
				return err
			})
		})
	}
}

// TestHostileManySlowSubscribers checks that what waits for all streams of a subject has a bound in
// bytes, and that the streams of another subject do not end for it.
func TestHostileManySlowSubscribers(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.UnreadBytesPerSubject, c.Limits.UnreadBytes = 2<<20, 64<<20 })
	other := subscribe(t, g.Client(g.TokenOf("other")), from("room", 0))
	other.awaitState("room")
	const messages = 15
	slow := make([]*connect.ServerStreamForClient[parleyv1.SubscribeResponse], 8)
	for i := range slow {
		slow[i] = g.unread(nil, "room")
	}
	c := g.Client(g.Token)
	text := strings.Repeat("x", 60<<10)
	for i := range messages { // no stream's own queue is full: 900 KiB of 1 MiB
		send(t, c, "room", text)
		other.await("room", 0, i+1)
	}
	cut := 0
	for _, s := range slow {
		last := int64(0)
		for last < messages && s.Receive() {
			for _, e := range s.Msg().GetEvents().GetEvents() {
				last = e.GetSeq()
			}
		}
		if last == messages {
			continue
		}
		cut++
		d := detailOf(t, s.Err())
		if p := d.GetPositions(); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER || len(p) != 1 || p[0].GetSeq() != last {
			t.Errorf("a stream that was read up to %d ended with %v, %v", last, s.Err(), d)
		}
	}
	if cut < 3 || cut == len(slow) {
		t.Errorf("%d of %d streams were cut", cut, len(slow))
	}
	again := subscribe(t, c, from("room", 0))
	again.await("room", 0, messages)
}
