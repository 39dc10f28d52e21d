package intercept

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

func opaque(_ context.Context, _ error) *connect.Error {
	return connect.NewError(connect.CodeInternal, errors.New("internal error"))
}

func TestCheckInput(t *testing.T) {
	t.Parallel()
	far := &timestamppb.Timestamp{Seconds: -1 << 62}
	for name, tt := range map[string]struct {
		m     proto.Message
		field string
	}{
		"fine":            {&parleyv1.Message{Content: "x", Metadata: map[string]string{"a": "b"}, MsgTime: timestamppb.Now()}, ""},
		"string":          {&parleyv1.Message{Content: "a\x00"}, "content"},
		"map's key":       {&parleyv1.Message{Metadata: map[string]string{"a\x00": "b"}}, `metadata["a\x00"]`},
		"map's value":     {&parleyv1.Message{Metadata: map[string]string{"a": "\x00b"}}, `metadata["a"]`},
		"time":            {&parleyv1.Message{MsgTime: far}, "msg_time"},
		"duration":        {&parleyv1.Session{HeartbeatInterval: &durationpb.Duration{Nanos: -5, Seconds: 5}}, "heartbeat_interval"},
		"nested in lists": {&parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{{}, {FromId: "\x00"}}}, "messages[1].from_id"},
		"list of strings": {&parleyv1.UpdateSubscriptionRequest{Remove: []string{"a", "\x00"}}, "remove[1]"},
		"oneof": {&parleyv1.SubscribeResponse{Events: []*parleyv1.ChannelEvent{{
			Event: &parleyv1.ChannelEvent_Sent{Sent: &parleyv1.Message{MsgTime: far}},
		}}}, "events[0].sent.msg_time"},
		"itself": {far, ""},
	} {
		err := CheckInput(tt.m)
		f, ok := fault.As(err)
		switch {
		case name == "fine":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case !ok || f.Kind != fault.InvalidArgument || f.Reason != fault.InvalidField || f.Field != tt.field:
			t.Errorf("%s: %v", name, err)
		}
	}
}

func serve(calls *Calls, h http.HandlerFunc, change func(*http.Request)) (rec *httptest.ResponseRecorder, aborted bool) {
	r := httptest.NewRequest(http.MethodPost, "/parley.v1.X/Y", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	rec = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			aborted = p == http.ErrAbortHandler
		}
	}()
	calls.Wrap(h).ServeHTTP(rec, r)
	return rec, false
}

// A panic outside of the interceptors, as in a codec, is answered opaquely while that is possible, and else cut.
func TestCallsRecover(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	calls := NewCalls(slog.New(slog.NewJSONHandler(&logged, nil)), opaque)
	rec, aborted := serve(calls, func(http.ResponseWriter, *http.Request) { panic("10.0.0.1") }, nil)
	if aborted || rec.Code != http.StatusInternalServerError || strings.Contains(rec.Body.String(), "10.0.0.1") ||
		rec.Header().Get(RequestIDHeader) == "" {
		t.Errorf("%v %d %s", aborted, rec.Code, rec.Body)
	}
	text := logged.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "10.0.0.1") || !strings.Contains(text, "intercept_test.go") {
		t.Errorf("logged %s", text)
	}
	if _, aborted = serve(calls, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{"))
		panic("late")
	}, nil); !aborted {
		t.Error("a response that was begun is not cut")
	}
	logged.Reset()
	_, aborted = serve(calls, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil)
	if !aborted || logged.Len() > 0 {
		t.Errorf("net/http's own panic: aborted %v, logged %s", aborted, &logged)
	}
}

// Two ids are none: a proxy in front and the server would each believe another one.
func TestCallsReplacesTwoIDs(t *testing.T) {
	t.Parallel()
	calls := NewCalls(slog.New(slog.DiscardHandler), opaque)
	rec, _ := serve(calls, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Values(RequestIDHeader); len(got) != 1 || got[0] != w.Header().Get(RequestIDHeader) {
			t.Errorf("handler sees %v", got)
		}
	}, func(r *http.Request) { r.Header[RequestIDHeader] = []string{"a", "b"} })
	if got := rec.Header().Get(RequestIDHeader); got == "a" || got == "b" || got == "" {
		t.Errorf("answered %q", got)
	}
}

type fakeConn struct {
	connect.StreamingHandlerConn

	spec    connect.Spec
	message *parleyv1.Message
}

func (c *fakeConn) Spec() connect.Spec { return c.spec }

func (c *fakeConn) Receive(m any) error {
	proto.Merge(m.(proto.Message), c.message)
	return nil
}

// Every interceptor does its work on streams too.
func TestStreamsAreWrapped(t *testing.T) {
	t.Parallel()
	stream := func(i connect.Interceptor, h connect.StreamingHandlerFunc) error {
		return i.WrapStreamingHandler(h)(t.Context(), &fakeConn{
			spec:    connect.Spec{StreamType: connect.StreamTypeServer, Procedure: "/p"},
			message: &parleyv1.Message{Content: "\x00"},
		})
	}
	boom := errors.New("boom")
	fails := func(context.Context, connect.StreamingHandlerConn) error { return boom }
	if err := stream(Errors(slog.New(slog.DiscardHandler), opaque), fails); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("errors: %v", err)
	}
	var p *PanicError
	panics := func(context.Context, connect.StreamingHandlerConn) error { panic(boom) }
	if err := stream(Recover(), panics); !errors.As(err, &p) || len(p.Stack) == 0 {
		t.Errorf("recover: %v", err)
	}
	bounded := func(ctx context.Context, _ connect.StreamingHandlerConn) error {
		if _, ok := ctx.Deadline(); ok {
			return boom
		}
		return nil
	}
	if err := stream(Deadline(time.Millisecond), bounded); err != nil {
		t.Errorf("a stream has a deadline")
	}
	few := func(any) error { return nil }
	receive := func(_ context.Context, conn connect.StreamingHandlerConn) error {
		return conn.Receive(&parleyv1.Message{})
	}
	if err := stream(Input(few), receive); !fault.Is(err, fault.InvalidField) {
		t.Errorf("input: %v", err)
	}
	if err := stream(Input(few, "/p"), receive); err != nil {
		t.Errorf("input that is passed over: %v", err)
	}
	if err := stream(Input(func(any) error { return boom }, "/p"), receive); !errors.Is(err, boom) {
		t.Errorf("input of too many items: %v", err)
	}
}
