package rpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

func sendOK(_ context.Context, r message.SendRequest) (message.Receipt, error) {
	return message.Receipt{MsgID: r.Content, MsgTime: someTime}, nil
}

// raw sends one HTTP request and returns the response and its whole body.
func (b *bundle) raw(hc *http.Client, method, path string, header http.Header, body io.Reader) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url()+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = header
	resp, err := hc.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(data)
}

func (b *bundle) headers(contentType string, more ...string) http.Header {
	h := http.Header{"Content-Type": {contentType}, "Authorization": {"Bearer " + b.token}}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = []string{more[i+1]}
	}
	return h
}

func (b *bundle) dial() net.Conn {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	return conn
}

func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	h := b.headers("application/json", "X-Large", strings.Repeat("a", 20<<10))
	resp, _ := b.raw(b.h1, http.MethodPost, parleyv1connect.MessageServiceGetMessageProcedure, h, strings.NewReader("{}"))
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered %d", resp.StatusCode)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url()+parleyv1connect.MessageServiceGetMessageProcedure, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	if resp, err := b.h2.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %d over HTTP/2", resp.StatusCode)
		}
	}
}

// A call ends if its body arrives too slowly. Once the body has arrived, only the call's own time
// limit applies.
func TestBodyTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.BodyTimeout = 200 * time.Millisecond })
	slow := func(ctx context.Context) error {
		select {
		case <-ctx.Done(): // must not happen: the client is connected
			return ctx.Err()
		case <-time.After(600 * time.Millisecond):
			return nil
		}
	}
	b.messages.send = func(ctx context.Context, r message.SendRequest) (message.Receipt, error) {
		if err := slow(ctx); err != nil {
			return message.Receipt{}, err
		}
		return sendOK(ctx, r)
	}
	b.messages.list = func(ctx context.Context, _ message.ListQuery) (message.Page, error) {
		return message.Page{}, slow(ctx)
	}
	for name, hc := range map[string]*http.Client{"h1": b.h1, "h2": b.h2} {
		resp, text := b.raw(hc, http.MethodPost, parleyv1connect.MessageServiceSendMessageProcedure,
			b.headers("application/json"), strings.NewReader(`{"channelId":"a","content":"slow"}`))
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: a slow call with a quick body: %d %s", name, resp.StatusCode, text)
		}
		resp, text = b.raw(hc, http.MethodGet,
			parleyv1connect.MessageServiceListMessagesProcedure+"?connect=v1&encoding=json&message=%7B%22channelId%22%3A%22a%22%7D",
			http.Header{"Authorization": {"Bearer " + b.token}}, http.NoBody)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: a slow call without a body: %d %s", name, resp.StatusCode, text)
		}
		for contentType, code := range map[string]string{"application/json": "deadline_exceeded", "application/grpc": "4"} {
			r, w := io.Pipe()
			go func() {
				defer w.Close()
				for range 40 {
					if _, err := w.Write([]byte{0}); err != nil {
						return
					}
					<-time.After(50 * time.Millisecond)
				}
			}()
			start := time.Now()
			resp, text := b.raw(hc, http.MethodPost, parleyv1connect.MessageServiceSendMessageProcedure, b.headers(contentType), r)
			r.Close()
			var wire struct{ Code string }
			_ = json.Unmarshal([]byte(text), &wire) // only some have one
			got := wire.Code + resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
			if took := time.Since(start); got != code || took > 1500*time.Millisecond {
				t.Errorf("%s, %s: %q after %v (%s)", name, contentType, got, took, text)
			}
			if strings.Contains(text+resp.Trailer.Get("Grpc-Message"), "127.0.0.1") {
				t.Errorf("%s: tells an address: %s", name, text)
			}
		}
	}
}

// bomb returns size zero bytes, compressed with gzip.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for zeros := make([]byte, 1<<20); size > 0; size -= len(zeros) {
		if _, err := w.Write(zeros[:min(size, len(zeros))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGzipBomb(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	data := bomb(t, 64<<20)
	for name, tt := range map[string]struct {
		header http.Header
		body   []byte
		code   string
	}{
		"connect": {b.headers("application/proto", "Content-Encoding", "gzip"), data, "resource_exhausted"},
		"grpc": {
			b.headers("application/grpc", "Grpc-Encoding", "gzip"),
			append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(data))), data...), "8",
		},
	} {
		start := time.Now()
		resp, text := b.raw(b.h2, http.MethodPost, parleyv1connect.MessageServiceSendMessagesProcedure, tt.header, bytes.NewReader(tt.body))
		var wire struct{ Code string }
		_ = json.Unmarshal([]byte(text), &wire) // only some have one
		if got := wire.Code + resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); got != tt.code {
			t.Errorf("%s: %q, %s", name, got, text)
		}
		t.Logf("%s: %v for 64 MiB", name, time.Since(start))
	}
	// Nothing beyond the limit is decompressed, even if connect reads on after an error.
	g := &boundedGunzip{limit: 1 << 20}
	if err := g.Reset(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, g)
	if n != 1<<20 || !errors.Is(err, errDecompressedSize) || g.Close() != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := g.Reset(bytes.NewReader(bomb(t, 1000))); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, g); n != 1000 || err != nil {
		t.Errorf("the next one: %d bytes, %v", n, err)
	}
}

func TestGzipRequestsAreAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.messages.send = sendOK
	for i, p := range protocols {
		c := b.client(i, b.token, connect.WithSendGzip())
		content := strings.Repeat("x", 65536)
		resp, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "a", Content: content})
		if err != nil || resp.GetMsgId() != content {
			t.Errorf("%s: %v", p.name, err)
		}
		s, _ := subscribe(t, c, from("a", 0))
		events(t, s, 1)
	}
}

// A stream that ends with its context has the cause as its error: STREAM_STALLED if a write took
// too long, or the cancellation, instead of the session's error.
func TestStreamEndReason(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	failure := errors.New("failure")
	past, ahead := &frameWriter[any]{deadline: time.Now().Add(-1)}, &frameWriter[any]{deadline: time.Now().Add(time.Hour)}
	if err := past.ended(gone, context.Canceled); !fault.Is(err, fault.StreamStalled) {
		t.Errorf("a flush that took too long: %v", err)
	}
	if err := ahead.ended(gone, failure); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that left: %v", err)
	}
	if err := ahead.ended(t.Context(), failure); !errors.Is(err, failure) {
		t.Errorf("anything else: %v", err)
	}
}
