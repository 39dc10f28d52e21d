package server_test

import (
	"bytes"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/servertest"
)

// idleStack returns the most stack, in bytes, that a waiting stream may hold: that of its handler
// and of net/http's two goroutines for the connection. A stack is halved only while less than a
// quarter of it is in use, so one frame too many between net/http and Session.Next doubles the
// handler's from 8 KiB to 16 KiB. Under the race detector frames are larger.
func idleStack() float64 {
	if raceCost > 1 {
		return 48 << 10
	}
	return 24 << 10
}

// idle opens n Subscribe streams on separate connections and reads their first frames. After that
// nothing reads them.
func idle(tb testing.TB, s *servertest.Server, n int) {
	tb.Helper()
	request, err := proto.Marshal(&parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: "room"}}})
	if err != nil {
		tb.Fatal(err)
	}
	var opening bytes.Buffer
	opening.Write(openingHTTP2())
	framer := http2.NewFramer(&opening, nil)
	err = errors.Join(
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headerBlock("Subscribe", s.Token), EndHeaders: true}),
		framer.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(request))}, request...)),
	)
	if err != nil {
		tb.Fatal(err)
	}
	for range n {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write(opening.Bytes()); err != nil {
			tb.Fatal(err)
		}
		for in, live := http2.NewFramer(conn, conn), false; !live; {
			f, err := in.ReadFrame()
			if err != nil {
				tb.Fatal(err)
			}
			_, live = f.(*http2.DataFrame)
		}
	}
}

// heldBy returns the bytes of stack and heap that the process uses, after all stacks have shrunk as
// far as they can.
func heldBy() (stack, heap float64) {
	for range 5 { // each collection halves a stack at most
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.StackInuse), float64(m.HeapAlloc)
}

func TestIdleStreamsUseLittleStack(t *testing.T) { //nolint:paralleltest // other tests' stacks would count
	const n = 200
	s := servertest.Dev(t)
	before, _ := heldBy()
	idle(t, s, n)
	now, _ := heldBy()
	if perStream := (now - before) / n; perStream > idleStack() {
		t.Errorf("a stream holds %.0f bytes of stack, want at most %.0f", perStream, idleStack())
	}
}

// BenchmarkIdleStreams reports the bytes of memory that an idle stream on its own connection holds,
// including the client's end of the connection.
func BenchmarkIdleStreams(b *testing.B) {
	const n = 500
	for b.Loop() {
		s := servertest.Dev(b)
		stack, heap := heldBy()
		idle(b, s, n)
		stackThen, heapThen := heldBy()
		b.ReportMetric((stackThen-stack)/n, "stack-B/stream")
		b.ReportMetric((heapThen-heap)/n, "heap-B/stream")
	}
}
