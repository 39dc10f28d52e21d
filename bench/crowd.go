package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// dialers is the number of streams that are opened concurrently.
const dialers = 64

// crowd is a set of streams, each of one channel and on a connection of its own.
type crowd struct {
	followers []*follower
	// failed holds an unexpected end of a stream, if there was one. It has room for one.
	failed  chan error
	closing atomic.Bool
	reading sync.WaitGroup
}

// follower is one stream of a crowd. It checks that no entry or piece of text is missing or
// repeated.
type follower struct {
	stream *rawStream
	crowd  *crowd
	// received counts the messages and deltas that have arrived, and last is the seq of the last
	// message. live is closed when the channel's state has arrived, which also sets isLive.
	received atomic.Int64
	last     atomic.Int64
	live     chan struct{}
	isLive   bool
	// text is how many bytes the follower has of an open message's text.
	text int64
	// latencies are those of messages and deltas in microseconds, recorded while keep is set.
	keep      *atomic.Bool
	latencies []uint32
}

// openCrowd opens n streams to the target's nodes in turn, follower i on channel(i) without earlier
// entries, and waits until all are live, at most 2 minutes. readBuffer is the size of each
// connection's buffer. Latencies are recorded while keep is set; a nil keep records none.
func openCrowd(
	ctx context.Context, t *Target, n, readBuffer int, channel func(i int) string, keep *atomic.Bool,
) (*crowd, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := &crowd{followers: make([]*follower, n), failed: make(chan error, 1)}
	var opening errgroup.Group
	opening.SetLimit(dialers)
	for i := range n {
		opening.Go(func() error {
			request, err := proto.Marshal(&parleyv1.SubscribeRequest{
				Channels: []*parleyv1.ChannelPosition{{ChannelId: channel(i)}},
			})
			if err != nil {
				return err
			}
			stream, err := openStream(ctx, t.Addrs[i%len(t.Addrs)],
				parleyv1connect.MessageServiceSubscribeProcedure, t.Token, request, readBuffer)
			if err != nil {
				return err
			}
			f := &follower{stream: stream, crowd: c, live: make(chan struct{}), keep: keep}
			c.followers[i] = f
			c.reading.Go(f.read)
			return f.wait(ctx)
		})
	}
	if err := opening.Wait(); err != nil {
		c.close()
		return nil, fmt.Errorf("%d streams (is the limit of open files high enough?): %w", n, err)
	}
	return c, nil
}

// wait blocks until the stream is live.
func (f *follower) wait(ctx context.Context) error {
	select {
	case <-f.live:
		return nil
	case err := <-f.crowd.failed:
		f.crowd.fail(err)
		return err
	case <-ctx.Done():
		return errors.New("a stream did not become live in time")
	}
}

// read processes events until the stream ends.
func (f *follower) read() {
	for {
		frame, err := f.stream.next()
		if err == nil {
			err = eachEvent(frame, f.take)
		}
		if err != nil {
			if !f.crowd.closing.Load() {
				f.crowd.fail(fmt.Errorf("a stream failed: %w", err))
			}
			return
		}
	}
}

// take processes one event. It returns an error for a gap and for a missing or repeated entry.
func (f *follower) take(e *event) error {
	switch e.kind {
	case fieldState:
		if !f.isLive {
			f.isLive = true
			f.last.Store(e.seq)
			close(f.live)
		}
	case fieldSent:
		if last := f.last.Load(); !e.follows(last) {
			return fmt.Errorf("entry %d came after %d", e.seq, last)
		}
		f.last.Store(e.seq)
		f.received.Add(1)
		f.record(contentOf(e.body))
	case fieldDelta:
		return f.takeText(e.body)
	case fieldGap:
		return errors.New("the server reported a gap")
	default:
	}
	return nil
}

// takeText processes a piece of an open message's text, which may consist of several deltas. It
// returns an error unless the piece continues the text.
func (f *follower) takeText(body []byte) error {
	var d parleyv1.MessageDelta
	if err := proto.Unmarshal(body, &d); err != nil {
		return errDamaged
	}
	if d.GetOffset() != f.text {
		return fmt.Errorf("a text continues at %d after %d bytes", d.GetOffset(), f.text)
	}
	text := []byte(d.GetText())
	for len(text) > 0 {
		rest := deltaBytes - int(f.text%deltaBytes) // to the end of a delta
		piece := text[:min(rest, len(text))]
		if len(piece) == deltaBytes {
			f.record(piece)
		}
		if f.text += int64(len(piece)); f.text%deltaBytes == 0 {
			f.received.Add(1)
		}
		text = text[len(piece):]
	}
	return nil
}

// record records the latency of a content while keep is set.
func (f *follower) record(content []byte) {
	if f.keep == nil || !f.keep.Load() {
		return
	}
	if at := stampOf(content); at > 0 {
		f.latencies = append(f.latencies, uint32(max(0, time.Now().UnixNano()-at)/1000)) //nolint:gosec // up to an hour
	}
}

// received returns the total number of messages and deltas that the followers have received.
func (c *crowd) received() int64 {
	var n int64
	for _, f := range c.followers {
		n += f.received.Load()
	}
	return n
}

// slowest returns the smallest number of messages that a follower has received.
func (c *crowd) slowest() int64 {
	least := c.followers[0].received.Load()
	for _, f := range c.followers {
		least = min(least, f.received.Load())
	}
	return least
}

// fail records an error that ended a stream, unless one is recorded. It does not block.
func (c *crowd) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// err returns an error that ended a stream, or nil if there is none. It does not block.
func (c *crowd) err() error {
	select {
	case err := <-c.failed:
		// Another stream may have failed in between, so failed may be full again.
		c.fail(err)
		return err
	default:
		return nil
	}
}

// close ends all streams and waits for their goroutines. Afterwards the latencies may be read.
func (c *crowd) close() {
	c.closing.Store(true)
	for _, f := range c.followers {
		if f != nil {
			f.stream.close()
		}
	}
	c.reading.Wait()
}

// latencies returns the sorted latencies of all followers. It may be called only after close.
func (c *crowd) latencies() []uint32 {
	var all []uint32
	for _, f := range c.followers {
		all = append(all, f.latencies...)
	}
	slices.Sort(all)
	return all
}

// Quantile returns the value of a sorted list below which the share q of the list lies, with q from
// 0 to 1. It does not interpolate. It panics if the list is empty.
func Quantile[T any](sorted []T, q float64) T {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// bearer adds the token to each call.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// Client returns a client of one of the target's nodes, on an HTTP/2 connection of its own. node is
// taken modulo the number of nodes. closing closes the connection.
func (t *Target) Client(node int) (client parleyv1connect.MessageServiceClient, closing func()) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return parleyv1connect.NewMessageServiceClient(&http.Client{Transport: bearer{transport, t.Token}},
		t.Addrs[node%len(t.Addrs)], connect.WithGRPC()), transport.CloseIdleConnections
}

// pause sleeps for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
