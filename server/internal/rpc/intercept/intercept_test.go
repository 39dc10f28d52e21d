package intercept

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
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
		"fine":            {&parleyv1.ChannelMessage{Content: "x", Metadata: map[string]string{"a": "b"}, MsgTime: timestamppb.Now()}, ""},
		"string":          {&parleyv1.ChannelMessage{Content: "a\x00"}, "content"},
		"map's key":       {&parleyv1.ChannelMessage{Metadata: map[string]string{"a\x00": "b"}}, `metadata["a\x00"]`},
		"map's value":     {&parleyv1.ChannelMessage{Metadata: map[string]string{"a": "\x00b"}}, `metadata["a"]`},
		"time":            {&parleyv1.ChannelMessage{MsgTime: far}, "msg_time"},
		"duration":        {&parleyv1.StreamInfo{HeartbeatInterval: &durationpb.Duration{Nanos: -5, Seconds: 5}}, "heartbeat_interval"},
		"nested in lists": {&parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{{}, {FromId: "\x00"}}}, "messages[1].from_id"},
		"list of strings": {&parleyv1.UpdateSubscriptionRequest{Remove: []string{"a", "\x00"}}, "remove[1]"},
		"oneof": {&parleyv1.EventBatch{Events: []*parleyv1.ChannelEvent{{
			Event: &parleyv1.ChannelEvent_Sent{Sent: &parleyv1.ChannelMessage{MsgTime: far}},
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

// A panic outside of the interceptors, as in a codec, is answered with an internal error without
// its text, if nothing was written yet. Otherwise the response is aborted.
func TestCallsRecover(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	calls := NewCalls(Config{Logger: slog.New(slog.NewJSONHandler(&logged, nil)), ToWire: opaque})
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

// Of a request with two X-Request-Id headers neither is used: a proxy in front and the server might
// each use a different one.
func TestCallsReplacesDuplicateRequestIDs(t *testing.T) {
	t.Parallel()
	calls := NewCalls(Config{Logger: slog.New(slog.DiscardHandler), ToWire: opaque})
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
	message *parleyv1.ChannelMessage
}

func (c *fakeConn) Spec() connect.Spec { return c.spec }

func (c *fakeConn) Receive(m any) error {
	proto.Merge(m.(proto.Message), c.message)
	return nil
}

// The interceptors Errors, Recover and Check also work on streams. Deadline sets no deadline there.
func TestStreamsAreWrapped(t *testing.T) {
	t.Parallel()
	stream := func(i connect.Interceptor, h connect.StreamingHandlerFunc) error {
		return i.WrapStreamingHandler(h)(t.Context(), &fakeConn{
			spec:    connect.Spec{StreamType: connect.StreamTypeServer, Procedure: "/p"},
			message: &parleyv1.ChannelMessage{Content: "\x00"},
		})
	}
	boom := errors.New("boom")
	fails := func(context.Context, connect.StreamingHandlerConn) error { return boom }
	few := func(any) error { return nil }
	explain := func(string, http.Header, connect.Code) error { return errors.New("explained") }
	mapped := func(undecoded func(any) error) connect.Interceptor {
		plain := func(_ context.Context, err error) *connect.Error { return connect.NewError(connect.CodeInternal, err) }
		return NewCalls(Config{slog.New(slog.DiscardHandler), plain, explain, undecoded}).Errors()
	}
	if err := stream(mapped(few), fails); connect.CodeOf(err) != connect.CodeInternal {
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
	receive := func(_ context.Context, conn connect.StreamingHandlerConn) error {
		return conn.Receive(&parleyv1.ChannelMessage{})
	}
	input := func(_ context.Context, request any) error { return CheckInput(request.(proto.Message)) }
	if err := stream(Check(input), receive); !fault.Is(err, fault.InvalidField) {
		t.Errorf("check: %v", err)
	}
	if err := stream(Check(func(context.Context, any) error { return nil }), receive); err != nil {
		t.Errorf("a check that passes: %v", err)
	}
	if err := stream(mapped(func(any) error { return boom }), receive); !errors.Is(err, boom) {
		t.Errorf("a message that could not be decoded: %v", err)
	}
	if err := stream(mapped(few), receive); err != nil {
		t.Errorf("a good message: %v", err)
	}
}

type brokenConn struct {
	fakeConn

	err error
}

func (c *brokenConn) Receive(any) error { return c.err }

func (c *brokenConn) RequestHeader() http.Header { return http.Header{"A": {"b"}} }

// A stream's errors of receiving are those of Explain instead of connect's. The end of the stream
// and of the call stay unchanged.
func TestReceiveErrorsAreExplained(t *testing.T) {
	t.Parallel()
	explained := errors.New("explained")
	i := NewCalls(Config{
		Logger: slog.New(slog.DiscardHandler), DecodeError: func(any) error { return nil },
		ToWire: func(_ context.Context, err error) *connect.Error { return connect.NewError(connect.CodeInternal, err) },
		Explain: func(procedure string, header http.Header, code connect.Code) error {
			if procedure != "/p" || header.Get("A") != "b" || code != connect.CodeResourceExhausted {
				t.Errorf("asked about %s with %v and %v", procedure, header, code)
			}
			return explained
		},
	}).Errors()
	for _, tt := range []struct{ err, want error }{
		{connect.NewError(connect.CodeResourceExhausted, errors.New("too large")), explained},
		{io.EOF, io.EOF},
		{connect.NewError(connect.CodeUnknown, io.EOF), io.EOF},
		{connect.NewError(connect.CodeCanceled, context.Canceled), context.Canceled},
		{connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), context.DeadlineExceeded},
	} {
		conn := &brokenConn{fakeConn{spec: connect.Spec{Procedure: "/p"}}, tt.err}
		err := i.WrapStreamingHandler(func(_ context.Context, conn connect.StreamingHandlerConn) error {
			return conn.Receive(nil)
		})(t.Context(), conn)
		if !errors.Is(err, tt.want) {
			t.Errorf("%v became %v, want %v", tt.err, err, tt.want)
		}
	}
}

// If no interceptor has seen a call, connect's whole response is replaced. HTTP's own responses,
// and those to calls that an interceptor has seen, stay unchanged.
func TestConnectErrorsAreReplaced(t *testing.T) {
	t.Parallel()
	var code connect.Code
	explain := func(_ string, _ http.Header, c connect.Code) error {
		code = c
		return errors.New("explained")
	}
	toWire := func(context.Context, error) *connect.Error {
		return connect.NewError(connect.CodeAborted, errors.New("ours"))
	}
	calls := NewCalls(Config{Logger: slog.New(slog.DiscardHandler), ToWire: toWire, Explain: explain})
	answer := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, "13")
			}
			if status != 0 {
				w.WriteHeader(status)
			}
			_, _ = w.Write([]byte(body))
			w.(http.Flusher).Flush()
		}
	}
	seen := func(w http.ResponseWriter, r *http.Request) {
		callOf(r.Context()).handled = true
		answer(500, "", "theirs")(w, r)
	}
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		code connect.Code // the code passed to Explain; 0 if it is not called
		want string
	}{
		"seen":                {seen, 0, "500 theirs"},
		"405":                 {answer(405, "", "theirs"), 0, "405 theirs"},
		"415":                 {answer(415, "", "theirs"), 0, "415 theirs"},
		"505":                 {answer(505, "", "theirs"), 0, "505 theirs"},
		"400":                 {answer(400, "", "theirs"), connect.CodeInvalidArgument, "409 ours"},
		"429":                 {answer(429, "", "theirs"), connect.CodeResourceExhausted, "409 ours"},
		"499":                 {answer(499, "", "theirs"), connect.CodeCanceled, "409 ours"},
		"500":                 {answer(500, "", "theirs"), connect.CodeInternal, "409 ours"},
		"501":                 {answer(501, "", "theirs"), connect.CodeUnimplemented, "409 ours"},
		"504":                 {answer(504, "", "theirs"), connect.CodeDeadlineExceeded, "409 ours"},
		"a stream's":          {answer(0, "", "theirs"), connect.CodeInvalidArgument, "409 ours"},
		"gRPC-Web's":          {answer(0, "Grpc-Status", ""), connect.CodeInternal, "409 ours"},
		"gRPC's, in trailers": {answer(0, http.TrailerPrefix+"Grpc-Status", ""), connect.CodeInternal, "409 ours"},
	} {
		code = 0
		rec, _ := serve(calls, func(w http.ResponseWriter, r *http.Request) {
			EnterConnect(r.Context())
			tt.h(w, r)
		}, nil)
		text := rec.Body.String()
		for _, s := range []string{"ours", "theirs"} {
			if strings.Contains(text, s) {
				text = s
			}
		}
		if got := strconv.Itoa(rec.Code) + " " + text; got != tt.want || code != tt.code {
			t.Errorf("%s: answered %s after %v, want %s after %v", name, got, code, tt.want, tt.code)
		}
		for header := range rec.Header() {
			if strings.Contains(header, "Grpc") {
				t.Errorf("%s: %s is left", name, header)
			}
		}
	}
}
