package rpc

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/golang-jwt/jwt/v5"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// Without a valid token a call is refused before its body is read: it does not wait for the body,
// and the error says nothing about it.
func TestTokenBeforeBody(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i, p := range protocols {
		for name, token := range map[string]string{"none": "", "bad": "a.b.c", "64 KiB": strings.Repeat("a", 9000)} {
			_, err := b.client(i, token).SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "*"})
			d, _ := details(t, err)
			if connect.CodeOf(err) != connect.CodeUnauthenticated || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID ||
				d.GetRetryable() || d.GetRequestId() == "" {
				t.Errorf("%s, %s: %v, %v", p.name, name, err, d)
			}
			if line := b.logged.oneLine(t); line["request_id"] != d.GetRequestId() || line["code"] != "unauthenticated" {
				t.Errorf("%s, %s: logged %v", p.name, name, line)
			}
		}
	}
	conn := b.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
		parleyv1connect.MessageServiceSendMessageProcedure)
	start := time.Now()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || time.Since(start) > 5*time.Second {
		t.Fatalf("%v, %v after %v", resp, err, time.Since(start))
	}
	resp.Body.Close()
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 10} })
	b.messages.send = sendOK
	b.messages.batch = func(_ context.Context, rs []message.SendRequest) []message.SendOutcome {
		return make([]message.SendOutcome, len(rs))
	}
	one := &parleyv1.SendMessageRequest{ChannelId: "a", Content: "x"}
	for i, p := range protocols {
		c := b.client(i, b.mint(p.name, everything))
		if _, err := c.SendMessages(t.Context(), &parleyv1.SendMessagesRequest{
			Messages: []*parleyv1.SendMessageRequest{one, one, one, one, one, one, one, one},
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.SendMessage(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "*"}) // is not even checked
		d, retry := details(t, err)
		if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED ||
			!d.GetRetryable() || retry.GetRetryDelay().AsDuration() <= 0 {
			t.Errorf("%s: %v, %v, %v", p.name, err, d, retry)
		}
	}
}

func TestUnknownProcedure(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"/grpc.health.v1.Health/Cure", "/parley.v1.MessageService/DropTables", "/parley.v1.Nothing/Get", "/", "/parley.v1.MessageService/"} {
		for contentType, body := range map[string]string{
			"application/json": "{}", "application/proto": "", "application/grpc": "\x00\x00\x00\x00\x00",
			"application/grpc-web+proto": "\x00\x00\x00\x00\x00",
		} {
			resp, text := b.raw(b.h2, http.MethodPost, path, b.headers(contentType), strings.NewReader(body))
			grpc := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
			if resp.StatusCode != http.StatusNotFound || (!strings.Contains(text, `"unimplemented"`) && grpc != "12") {
				t.Errorf("%s of %s: %d, %q, grpc-status %q", contentType, path, resp.StatusCode, text, grpc)
			}
			if line := b.logged.oneLine(t); line["code"] != "unimplemented" {
				t.Errorf("logged %v", line)
			}
		}
	}
	for i, p := range protocols {
		url := b.url() + "/parley.v1.MessageService/DropTables"
		hc := b.h1
		if p.h2 {
			hc = b.h2
		}
		c := connect.NewClient[parleyv1.SendMessageRequest, parleyv1.SendMessageResponse](hc, url, p.opts...)
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&parleyv1.SendMessageRequest{}))
		if connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("%s (%d): %v", p.name, i, err)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for id, keep := range map[string]bool{
		"good_Id-1": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "a b": false, "\x1b[31mred": false,
		"a\u2028b": false, "": false, "a.b": false,
	} {
		h := b.headers("application/json")
		h["X-Request-Id"] = []string{id}
		delete(h, "Authorization")
		var got string
		if strings.ContainsRune(id, 0x1b) { // Go's client does not send it
			conn := b.dial()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
				parleyv1connect.MessageServiceSendMessageProcedure, id)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			conn.Close()
			if got = resp.Header.Get("X-Request-Id"); resp.StatusCode == http.StatusBadRequest {
				continue // net/http refused the header itself
			}
		} else {
			resp, _ := b.raw(b.h1, http.MethodPost, parleyv1connect.MessageServiceSendMessageProcedure, h, strings.NewReader("{}"))
			got = resp.Header.Get("X-Request-Id")
		}
		if (got == id) != keep || len(got) < 8 {
			t.Errorf("%q is answered %q", id, got)
		}
		if line := b.logged.oneLine(t); line["request_id"] != got {
			t.Errorf("logged %v, answered %q", line, got)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) {
		s.cfg.FrameTimeout, s.cfg.HeartbeatInterval = 200*time.Millisecond, 100*time.Millisecond
	})
	const path = "/grpc.health.v1.Health/"
	for _, p := range protocols {
		b.health.SetServing(true)
		hc := b.h1
		if p.h2 {
			hc = b.h2
		}
		check := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](hc, b.url()+path+"Check", p.opts...)
		watch := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](hc, b.url()+path+"Watch", p.opts...)
		ask := func(service string) (healthv1.HealthCheckResponse_ServingStatus, error) {
			resp, err := check.CallUnary(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{Service: service}))
			if err != nil {
				return 0, err
			}
			return resp.Msg.GetStatus(), nil
		}
		for _, service := range []string{"", "parley.v1.MessageService"} {
			if got, err := ask(service); err != nil || got != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("%s, %q: %v, %v", p.name, service, got, err)
			}
		}
		if _, err := ask("nobody"); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", p.name, err)
		}
		stream, err := watch.CallServerStream(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() || stream.Msg().GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", p.name, stream.Msg(), stream.Err())
		}
		<-time.After(400 * time.Millisecond) // longer than the time limit for a frame
		b.health.SetServing(false)
		if !stream.Receive() || stream.Msg().GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%s: %v, %v", p.name, stream.Msg(), stream.Err())
		}
		_ = stream.Close()
		if got, err := ask(""); err != nil || got != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%s: %v, %v", p.name, got, err)
		}
	}
}

// Of more than maxWatchers concurrent health watches, those beyond are refused. When a watcher
// leaves, another one can connect.
func TestHealthWatchers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	watch := func(protocol int) (*connect.ServerStreamForClient[healthv1.HealthCheckResponse], context.CancelFunc) {
		hc, url, opts := b.over(protocol, "")
		ctx, cancel := context.WithCancel(t.Context())
		c := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](hc, url+healthWatchProcedure, opts...)
		s, err := c.CallServerStream(ctx, connect.NewRequest(&healthv1.HealthCheckRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); _ = s.Close() })
		return s, cancel
	}
	var leave context.CancelFunc
	for range maxWatchers {
		var s *connect.ServerStreamForClient[healthv1.HealthCheckResponse]
		if s, leave = watch(1); !s.Receive() {
			t.Fatal(s.Err())
		}
	}
	for i, p := range protocols {
		s, _ := watch(i)
		if s.Receive() || refusal(t, s.Err()) != `resource_exhausted NODE_FULL "" 64 true` {
			t.Errorf("%s: one too many gets %v, %s", p.name, s.Msg(), refusal(t, s.Err()))
		}
	}
	leave()
	testkit.Eventually(t, 5*time.Second, func() error {
		s, cancel := watch(1)
		defer cancel()
		s.Receive()
		return s.Err()
	})
}

// refusal returns the parts of an error that a client's program reads, as one line.
func refusal(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	d, _ := details(t, err)
	return fmt.Sprintf("%v %s %q %d %v", connect.CodeOf(err), d.GetReason().String()[len(reasonPrefix):], d.GetField(), d.GetLimit(), d.GetRetryable())
}

// A node with too many streams and a subject with too many get the same retryable error, because
// another node may have room. Only the limits differ.
func TestFullNode(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		b := setup(t, func(s *settings) { s.hub.MaxStreams, s.hub.MaxStreamsPerSubject = 2, 1 })
		open := func(subject string) error {
			s, err := b.client(i, b.mint(subject, everything)).Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if s.Receive() {
				return nil
			}
			return s.Err()
		}
		for _, step := range []struct{ subject, want string }{
			{"ada", "ok"},
			{"ada", `resource_exhausted NODE_FULL "" 1 true`},
			{"bob", "ok"},
			{"eve", `resource_exhausted NODE_FULL "" 2 true`},
			{"ada", `resource_exhausted NODE_FULL "" 2 true`},
		} {
			if got := refusal(t, open(step.subject)); got != step.want {
				t.Errorf("%s, %s: %s, want %s", p.name, step.subject, got, step.want)
			}
		}
	}
}

// The errors of an expired token and of an invalid one differ, so that a client knows whether a new
// token helps.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "ada", "exp": time.Now().Add(-time.Minute).Unix(), "cap": map[string]any{"channel:*": []string{"send"}},
	}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range protocols {
		c := b.client(i, token)
		_, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "*"})
		if got := refusal(t, err); got != `unauthenticated TOKEN_EXPIRED "" 0 true` {
			t.Errorf("%s: a call is answered %s", p.name, got)
		}
		s, err := c.Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Receive() || refusal(t, s.Err()) != `unauthenticated TOKEN_EXPIRED "" 0 true` {
			t.Errorf("%s: a stream is answered %v, %s", p.name, s.Msg(), refusal(t, s.Err()))
		}
		_ = s.Close()
	}
}

// On a server without reflection, its procedures are refused like unknown ones.
func TestReflectionOff(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.Reflection = false })
	for _, version := range []string{"v1", "v1alpha"} {
		path := "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo"
		resp, _ := b.raw(b.h2, http.MethodPost, path, http.Header{"Content-Type": {"application/grpc"}}, strings.NewReader("\x00\x00\x00\x00\x00"))
		if got := readRefused(t, resp, ""); resp.StatusCode != http.StatusNotFound || got.code != "12" || got.detail == nil {
			t.Errorf("%s: %d, %+v", version, resp.StatusCode, got)
		}
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	stream := grpcreflect.NewClient(b.h2, b.url(), connect.WithGRPC()).NewStream(t.Context())
	defer func() { _, _ = stream.Close() }()
	names, err := stream.ListServices()
	if err != nil || len(names) != len(serviceNames())+1 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if _, err := stream.FileContainingSymbol(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.CORSOrigins = []string{"https://app.example"} })
	b.messages.send = sendOK
	const send = parleyv1connect.MessageServiceSendMessageProcedure
	preflight := func(origin string) *http.Response {
		resp, _ := b.raw(b.h1, http.MethodOptions, send, http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {"POST"},
			"Access-Control-Request-Headers": {"authorization,connect-protocol-version,content-type"},
		}, http.NoBody)
		return resp
	}
	if resp := preflight("https://app.example"); resp.StatusCode != http.StatusNoContent ||
		resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "authorization") {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	if resp := preflight("https://evil.example"); resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin's preflight: %v", resp.Header)
	}
	h := b.headers("application/json", "Origin", "https://app.example")
	resp, _ := b.raw(b.h1, http.MethodPost, send, h, strings.NewReader(`{"channelId":"a","content":"x"}`))
	if exposed := resp.Header.Get("Access-Control-Expose-Headers"); resp.StatusCode != 200 || !strings.Contains(exposed, "Grpc-Status") || !strings.Contains(exposed, "X-Request-Id") {
		t.Errorf("call: %d %v", resp.StatusCode, resp.Header)
	}
}

// listNothing is a fakeMessages.list. It returns an empty page of a log whose last seq is 7.
func listNothing(context.Context, message.ListQuery) (message.Page, error) {
	return message.Page{Head: 7}, nil
}

// Calls that only read can be made by GET, as browsers and curl do.
func TestGet(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.messages.list = listNothing
	resp, text := b.raw(b.h1, http.MethodGet,
		parleyv1connect.MessageServiceListMessagesProcedure+"?connect=v1&encoding=json&message=%7B%22channelId%22%3A%22a%22%7D",
		http.Header{"Authorization": {"Bearer " + b.token}}, http.NoBody)
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"7"`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

func TestNewHandlerRequiresEveryDependency(t *testing.T) {
	t.Parallel()
	if _, err := NewHandler(testConfig(), Deps{Messages: &fakeMessages{}}); err == nil {
		t.Error("made without its dependencies")
	}
}
