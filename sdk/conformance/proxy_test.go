package conformance_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/parleyhq/parley/internal/rig"
)

// node is an address that clients know: a proxy of TCP connections, behind it a proxy of calls, and
// behind that a server.
type node struct {
	name string
	// url is the address for clients.
	url string
	// wire is the proxy of TCP connections, which can cut and stall them.
	wire   *rig.Proxy
	faults *faults
	calls  *callLog
	errors *connect.ErrorWriter
	proxy  *httputil.ReverseProxy
}

// call is a call that reached a node's proxy, regardless of its result.
type call struct {
	procedure, node string
	at              time.Time
	token           string
	// request is the message as JSON.
	request any
}

// callLog contains the calls of all nodes, in the order of their arrival. Safe for concurrent use.
type callLog struct {
	mu    sync.Mutex
	calls []call
}

func (l *callLog) add(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// of returns the calls of a procedure as JSON values: node, afterMs (since the previous one), token
// and request. An empty node means all nodes.
func (l *callLog) of(procedure, node string) []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []any{}
	var last time.Time
	for _, c := range l.calls {
		if c.procedure != procedure || node != "" && c.node != node {
			continue
		}
		after := 0.0
		if !last.IsZero() {
			after = float64(c.at.Sub(last)) / float64(time.Millisecond)
		}
		last = c.at
		all = append(all, map[string]any{"node": c.node, "afterMs": after, "token": c.token, "request": c.request})
	}
	return all
}

func (l *callLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = nil
}

// connKey is the context key under which a request carries the client's connection.
type connKey struct{}

// startNode starts the two proxies of a node in front of the server at upstream. They end with the
// test.
func startNode(t *testing.T, name, upstream string, f *faults, calls *callLog) *node {
	t.Helper()
	n := &node{name: name, wire: rig.NewProxy(), faults: f, calls: calls, errors: connect.NewErrorWriter()}
	n.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", upstream
		},
		Transport:      newUpstream(t),
		ModifyResponse: n.edit,
		ErrorHandler:   func(_ http.ResponseWriter, r *http.Request, _ error) { n.breakConn(r) },
	}
	inner, outer := listen(t), listen(t)
	n.url = "http://" + outer.Addr().String()
	server := &http.Server{
		Handler: n, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(inner) }() // it ends with the test
	n.wire.Serve(outer, rig.DialTo("tcp", inner.Addr().String()))
	t.Cleanup(func() {
		n.faults.heal()
		n.wire.Close()
		_ = server.Close()
	})
	return n
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: network}
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// buffered is the socket buffer size of a proxied connection in each direction, in bytes. It is
// small, so that the server soon notices a slow reader.
const buffered = 128 << 10

// network sets the segment size and the buffers of a loopback socket to those of a real network.
// Loopback's own segments are 64 KiB. Once a slow reader has closed its window, the kernel would
// send only one of them at each tick of a timer.
func network(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1400),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffered),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, buffered),
		)
	})
	return errors.Join(err, failed)
}

// upstream is a transport that calls the server with the HTTP version of the client's request.
type upstream struct{ one, two *http.Transport }

func newUpstream(t *testing.T) upstream {
	t.Helper()
	dial := (&net.Dialer{Control: network}).DialContext
	u := upstream{
		one: &http.Transport{Protocols: new(http.Protocols), DisableCompression: true, DialContext: dial},
		two: &http.Transport{Protocols: new(http.Protocols), DisableCompression: true, DialContext: dial},
	}
	u.one.Protocols.SetHTTP1(true)
	u.two.Protocols.SetUnencryptedHTTP2(true)
	u.two.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 2 * buffered, MaxReceiveBufferPerConnection: 8 * buffered}
	t.Cleanup(u.one.CloseIdleConnections)
	t.Cleanup(u.two.CloseIdleConnections)
	return u
}

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(versionKey{}) == 2 {
		return u.two.RoundTrip(r)
	}
	return u.one.RoundTrip(r)
}

type versionKey struct{}

// editKey is the context key under which a request carries the fault that changes its stream.
type editKey struct{}

// breakConn ends a call by closing the client's connection, which ends all other calls on it too.
// It does not return.
func (n *node) breakConn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok && r.Context().Err() == nil {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		n.proxy.ServeHTTP(w, r) // not an RPC, for example the preflight request of a browser
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		n.breakConn(r)
	}
	name := path.Base(r.URL.Path)
	r.Body = io.NopCloser(bytes.NewReader(body))
	n.calls.add(call{
		procedure: name, node: n.name, at: time.Now(), token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
		request: decodeRequest(name, r.Header.Get("Content-Type"), body),
	})
	// Without these headers the server does not compress, so that the proxy can read streams.
	for _, name := range []string{"Accept-Encoding", "Connect-Accept-Encoding", "Grpc-Accept-Encoding"} {
		r.Header.Del(name)
	}
	ctx := context.WithValue(r.Context(), versionKey{}, r.ProtoMajor)
	f := n.faults.next(n.name, name)
	if f == nil {
		n.proxy.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	n.applyFault(ctx, w, r, f)
}

// applyFault applies a fault to a call.
func (n *node) applyFault(ctx context.Context, w http.ResponseWriter, r *http.Request, f *fault) {
	if f.Applied || f.Do == "lose" {
		n.proxy.ServeHTTP(&discardWriter{header: make(http.Header)}, r.WithContext(ctx))
	}
	switch f.Do {
	case "lose", "break":
		n.breakConn(r)
	case "answer":
		if err := n.errors.Write(w, r, f.Error.toConnect()); err != nil {
			n.breakConn(r)
		}
	case "status":
		w.Header().Set("Content-Type", f.ContentType)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body) // the client may have gone
	case "delay":
		select {
		case <-time.After(time.Duration(f.Ms * float64(time.Millisecond))):
		case <-ctx.Done():
		}
		n.proxy.ServeHTTP(w, r.WithContext(ctx))
	case "partial":
		if err := n.partial(w, r.WithContext(ctx), f); err != nil {
			n.breakConn(r)
		}
	case "late":
		kept := httptest.NewRecorder()
		n.proxy.ServeHTTP(kept, r.WithContext(ctx))
		select {
		case <-f.released:
		case <-ctx.Done():
		}
		copyAnswer(w, kept.Result())
	case "hold":
		select {
		case <-f.released:
		case <-ctx.Done():
		}
		n.proxy.ServeHTTP(w, r.WithContext(ctx))
	default: // a fault of a stream
		n.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, editKey{}, f)))
	}
}

// copyAnswer writes an answer that was recorded, with its trailers.
func copyAnswer(w http.ResponseWriter, kept *http.Response) {
	maps.Copy(w.Header(), kept.Header)
	w.WriteHeader(kept.StatusCode)
	_, _ = io.Copy(w, kept.Body) // the client may have gone
	for name, values := range kept.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// discardWriter is an http.ResponseWriter that discards an answer.
type discardWriter struct{ header http.Header }

func (n *discardWriter) Header() http.Header         { return n.header }
func (n *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (n *discardWriter) WriteHeader(int)             {}

// edit wraps the body of a server's response. If the server's connection breaks, the client's
// connection is closed too. If the request carries a fault of a stream, it is applied to the body.
func (n *node) edit(resp *http.Response) error {
	resp.Body = &brokenBodyReader{ReadCloser: resp.Body, broken: func() {
		if c, ok := resp.Request.Context().Value(connKey{}).(net.Conn); ok && resp.Request.Context().Err() == nil {
			_ = c.Close()
		}
	}}
	if f, ok := resp.Request.Context().Value(editKey{}).(*fault); ok {
		end := endOfStream(resp.Header.Get("Content-Type"))
		if f.Error.Code != "" {
			kept := &recorder{discardWriter: discardWriter{header: make(http.Header)}}
			if err := n.errors.Write(kept, resp.Request, f.Error.toConnect()); err != nil {
				return err
			}
			end = kept.body.Bytes()
		}
		resp.Body = newEditedStream(resp.Body, resp.Header.Get("Content-Type"), f, end)
	}
	return nil
}

// brokenBodyReader is a response body that calls broken if a read fails other than with io.EOF.
type brokenBodyReader struct {
	io.ReadCloser

	broken func()
}

func (b *brokenBodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken()
	}
	return n, err
}

// decodeRequest returns a request's message as JSON values or, if it cannot be decoded, the text of
// the error.
func decodeRequest(name, contentType string, body []byte) any {
	method := procedure(name)
	if method == nil {
		return "unknown procedure"
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return err.Error()
	}
	m := kind.New().Interface()
	enveloped := strings.Contains(contentType, "grpc") || strings.Contains(contentType, "connect+")
	if enveloped {
		if len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) > len(body)-5 {
			return "a cut envelope"
		}
		body = body[5 : 5+binary.BigEndian.Uint32(body[1:])]
	}
	if err := unmarshal(contentType, body, m); err != nil {
		return err.Error()
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err.Error()
	}
	sortSets(v)
	return v
}

// sortSets sorts the lists of a request of presence whose order has no meaning.
func sortSets(v any) {
	request, _ := v.(map[string]any)
	for name, value := range request {
		switch list, _ := value.([]any); name {
		case "watch", "watchChannels", "add", "remove":
			slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		case "presence":
			sortSets(value)
		}
	}
}

func isJSON(contentType string) bool { return strings.Contains(contentType, "json") }

func unmarshal(contentType string, data []byte, m proto.Message) error {
	if isJSON(contentType) {
		return protojson.Unmarshal(data, m)
	}
	return proto.Unmarshal(data, m)
}

func marshal(contentType string, m proto.Message) ([]byte, error) {
	if isJSON(contentType) {
		return protojson.Marshal(m)
	}
	return proto.Marshal(m)
}
