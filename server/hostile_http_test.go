package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
)

// dial opens a connection to the server that sends nothing on its own. The connection is closed
// when the test ends.
func (g *target) dial() net.Conn {
	g.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		g.t.Fatal(err)
	}
	return conn
}

// spoken sends text unchanged, closes the client's half of the connection if end is set, and reads
// the answer.
func (g *target) spoken(text string, end bool) (*answer, error) {
	g.t.Helper()
	conn := g.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, err
	}
	if half, ok := conn.(*net.TCPConn); ok && end {
		if err := half.CloseWrite(); err != nil {
			return nil, err
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAnswer(&dialects[0], resp)
}

// requestText returns the first lines of an HTTP/1.1 request, up to and including the empty one.
func (g *target) requestText(procedure, token string, header ...string) string {
	text := "POST /" + parleyv1connect.MessageServiceName + "/" + procedure + " HTTP/1.1\r\nHost: parley\r\n"
	if token != "" {
		text += "Authorization: Bearer " + token + "\r\n"
	}
	return text + strings.Join(header, "\r\n") + "\r\n\r\n"
}

// TestHostileBodies checks that bodies that break the rules of HTTP/1.1 are refused and store
// nothing. Connect's unary body has no frame whose length it could contradict.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	send(t, g.Client(g.Token), "room", "what stands there before")
	stored := g.stored()
	const body = `{"channel_id":"room","content":"x"}`
	for name, tt := range map[string]struct{ contentType, length, body string }{
		"body shorter than promised":                {"application/json", "Content-Length: 1000", body},
		"frame shorter than promised":               {"application/grpc-web+proto", "Content-Length: 1000", "\x00\x00\x00\x00\x09abc"},
		"prefix shorter than promised":              {"application/grpc-web+proto", "Content-Length: 1000", "\x00"},
		"chunks that are none":                      {"application/json", "Transfer-Encoding: chunked", "zz\r\n" + body + "\r\n"},
		"a chunk without an end":                    {"application/json", "Transfer-Encoding: chunked", "23\r\n" + body},
		"a chunk of 2^64":                           {"application/json", "Transfer-Encoding: chunked", "10000000000000000\r\n" + body},
		"chunks of gRPC-Web that are none":          {"application/grpc-web+proto", "Transfer-Encoding: chunked", "5\r\n\x00\x00\x00\x00\x09\r\nzz\r\n"},
		"chunks of a stream's request that are not": {"application/connect+json", "Transfer-Encoding: chunked", "5\r\n\x00\x00\x00\x00\x09\r\nzz\r\n"},
	} {
		procedure := sendMessage
		if strings.HasPrefix(tt.contentType, "application/connect+") {
			procedure = subscribing
		}
		a, err := g.spoken(g.requestText(procedure, g.Token, "Content-Type: "+tt.contentType, tt.length)+tt.body, true)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		g.judge(name, a, refused("invalid_argument"))
		a, err = g.spoken(g.requestText(procedure, "", "Content-Type: "+tt.contentType, tt.length)+tt.body, true)
		if err != nil {
			t.Errorf("%s, without a token: %v", name, err)
			continue
		}
		g.judge(name+", without a token", a, unauthenticated)
	}
	if now := g.stored(); now != stored {
		t.Errorf("the store has %s entries, before it had %s", now, stored)
	}
}

// TestHostileSmuggling checks that two lengths, or a length and chunks, are refused: they smuggle
// requests past a proxy. net/http accepts neither.
func TestHostileSmuggling(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	const body = `{"channel_id":"room","content":"x"}`
	for name, header := range map[string]string{
		"two lengths":       "Content-Length: 35\r\nContent-Length: 3",
		"length below zero": "Content-Length: -1",
		"odd encoding":      "Transfer-Encoding: xchunked",
		"two hosts":         "Host: other\r\nContent-Length: 35",
		"a space in a name": "Content-Length : 35",
		"a folded line":     "Content-Length:\r\n 35\r\nX :1",
	} {
		a, err := g.spoken(g.requestText(sendMessage, g.Token, "Content-Type: application/json", header)+body, true)
		if err != nil || (a.http != http.StatusBadRequest && a.http != http.StatusNotImplemented) || a.code != "" {
			t.Errorf("%s: answered %+v, %v", name, a, err)
		}
	}
	if head := g.head("room"); head != 0 {
		t.Errorf("the channel ends at %d", head)
	}
}

// TestHostileHeaders checks that a request with a header or token over the limit is answered with
// status 431, or that the connection ends.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for name, header := range map[string]string{
		"one header of 20 KiB": "X-Large: " + strings.Repeat("a", 20<<10),
		"many headers":         strings.TrimSuffix(strings.Repeat("X-Many: a\r\n", 3000), "\r\n"),
		"token of 64 KiB":      "Authorization: Bearer " + strings.Repeat("a", 64<<10),
		"a million dots":       "Authorization: Bearer " + strings.Repeat(".", 1_000_000),
		"one of 30 KiB":        "X: " + strings.Repeat("b", 30<<10),
	} {
		a, err := g.spoken(g.requestText(sendMessage, "", "Content-Length: 0", header), false)
		// Unread header bytes reset the connection, sometimes before the answer is read.
		if err == nil && a.http != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: answered %d %s", name, a.http, a.code)
		}
		if name == "one header of 20 KiB" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// trickle writes text byte by byte until the connection breaks or atMost has passed. It returns how
// long that took.
func trickle(t *testing.T, conn net.Conn, text string, every, atMost time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn) // until the server closes
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; time.Since(start) < atMost; i++ {
		if _, err := io.WriteString(conn, text[i%len(text):][:1]); err != nil {
			break
		}
		select {
		case <-ended:
			return time.Since(start)
		case <-tick.C:
		}
	}
	return time.Since(start)
}

// TestHostileTrickledHeader checks that the server closes a connection on which a header trickles
// in or nothing arrives.
func TestHostileTrickledHeader(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.HeaderTimeout, c.Limits.IdleTimeout = time.Second, time.Second })
	const atMost = 10 * time.Second
	for name, first := range map[string]string{
		"a header":          "POST /parley.v1.MessageService/SendMessage HTTP/1.1\r\nHost: parley\r\nX-Slow: ",
		"a first line":      "POST /",
		"half of a preface": "PRI * HTTP/2.0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := g.dial()
			if _, err := io.WriteString(conn, first); err != nil {
				t.Fatal(err)
			}
			if took := trickle(t, conn, "a", 50*time.Millisecond, atMost); took < 500*time.Millisecond || took >= atMost {
				t.Errorf("closed after %v", took)
			}
		})
	}
}

// TestHostileSlowBodies checks that the server waits for an announced body only as long as
// BodyTimeout, and not at all without a token.
func TestHostileSlowBodies(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.BodyTimeout = time.Second })
	for _, contentType := range []string{"application/json", "application/proto", "application/grpc-web+proto"} {
		header := []string{"Content-Type: " + contentType, "Content-Length: 1000"}
		start := time.Now()
		a, err := g.spoken(g.requestText(sendMessage, "", header...), false)
		if err != nil {
			t.Fatal(err)
		}
		g.judge(contentType+" without a token", a, unauthenticated)
		if took := time.Since(start); took > 900*time.Millisecond*raceCost {
			t.Errorf("%s: refused after %v", contentType, took)
		}
		start = time.Now()
		if a, err = g.spoken(g.requestText(sendMessage, g.Token, header...)+"\x00", false); err != nil {
			t.Fatal(err)
		}
		g.judge(contentType, a, refused("deadline_exceeded"))
		if took := time.Since(start); took < 900*time.Millisecond || took > 10*time.Second {
			t.Errorf("%s: timed out after %v", contentType, took)
		}
	}
}

// TestHostileTimeouts checks that a call with a timeout of months is served normally, within the
// server's own limit (see rpc's TestLongTimeout), and that a timeout of zero fails with
// deadline_exceeded.
func TestHostileTimeouts(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	l := line{
		procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "room"},
		header: header("Connect-Timeout-Ms", "9999999999", "Grpc-Timeout", "99999999H"),
	}
	for _, d := range l.dialects() {
		if a := g.call(&l, d, g.Token); a.code != "ok" {
			t.Errorf("%s: answered %s, %s", d.name, a.code, a.message)
		}
	}
	none := l
	none.header = header("Connect-Timeout-Ms", "0", "Grpc-Timeout", "0n")
	for _, d := range l.dialects() {
		a := g.call(&none, d, g.Token)
		if a.code != "deadline_exceeded" {
			t.Errorf("%s: a timeout of zero is answered %s, %s", d.name, a.code, a.message)
		}
	}
}

// TestHostileRequestIDs checks that a request's id is kept only if it is valid. Any other value is
// neither returned nor logged.
func TestHostileRequestIDs(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for name, ids := range map[string][]string{
		"U+2028": {"hostile\u2028id"}, "U+202E": {"hostile\u202eid"}, "8 KiB": {strings.Repeat("hostile", 1170)}, "empty": {""},
		"65 letters": {"hostile" + strings.Repeat("x", 58)}, "two": {"hostile-a", "hostile-b"}, "a quote": {`hostile","level":"ERROR`},
		"a tab": {"hostile\tid"}, "a dot": {"hostile.id"}, "a brace": {"{hostile}"},
	} {
		l := line{header: http.Header{"X-Request-Id": ids}, message: &parleyv1.SendMessageRequest{ChannelId: "*"}}
		for _, d := range l.dialects() {
			a := g.call(&l, d, g.Token)
			g.judge(name+", "+d.name, a, invalid("channel_id"))
			if strings.Contains(a.raw, "hostile") || len(a.requestID) != 36 {
				t.Errorf("%s, %s: answered %s", name, d.name, a.raw)
			}
		}
	}
	a, err := g.spoken(g.requestText(sendMessage, g.Token, "Content-Type: application/json", "X-Request-Id: hostile\x1b[31m", "Content-Length: 2")+"{}", false)
	if err != nil || a.http != http.StatusBadRequest || strings.Contains(a.raw, "hostile") {
		t.Errorf("an escape for terminals is answered %+v, %v", a, err)
	}
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	for _, line := range g.log.lines {
		if strings.Contains(fmt.Sprint(line), "hostile") {
			t.Errorf("logged %v", line)
		}
	}
}

// TestHostileTextIsEscapedInLog checks that text chosen by a client is escaped and truncated in the
// log.
func TestHostileTextIsEscapedInLog(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	l := line{
		path: "/parley.v1.MessageService/Send%0A%7B%22level%22:%22ERROR%22%7D%1B%5B31m%E2%80%A8" + strings.Repeat("x", 5000), open: true,
		header: header("Content-Type", "application/json; "+strings.Repeat("y", 5000), "User-Agent", "a\tb\u2028"), only: "connect-json",
		message: good(),
	}
	a := g.call(&l, &dialects[0], "")
	g.judge("a path with control characters", a, want{code: "unimplemented", reason: "UNIMPLEMENTED", http: http.StatusNotFound})
	for _, line := range g.log.failures(a.requestID) {
		if text := fmt.Sprint(line); len(text) > 2000 || !strings.Contains(text, "Send\n{") {
			t.Errorf("logged %d bytes: %s", len(text), text)
		}
	}
}

// TestHostileIdleConnectionsAreClosed checks that idle connections over HTTP/1.1, or before a
// protocol is chosen, are closed as those over HTTP/2 are. They cost other callers nothing.
func TestHostileIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.HeaderTimeout, c.Limits.IdleTimeout = time.Second, time.Second })
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = g.dial()
		if _, err := conns[i].Write(openingHTTP2()); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.head("room"); got != 0 {
		t.Errorf("the channel ends at %d", got)
	}
	start := time.Now()
	for i, conn := range conns {
		var said bytes.Buffer
		if _, err := said.ReadFrom(conn); err != nil && !isReset(err) {
			t.Fatalf("connection %d is open after %v: %v", i, time.Since(start), err)
		}
		if said.Len() == 0 {
			t.Fatalf("connection %d was closed before the first request", i)
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the last one was closed after %v", took)
	}
}

// isReset reports whether err means that the server closed the connection while data was in flight.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}
