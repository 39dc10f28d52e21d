package messages

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The channels of the hostile load: one message that is edited all the time, and messages of the
// largest size.
const (
	edited = "edited"
	giant  = "giant"
)

// hostileChannels are the channels that clients read besides the others, because they cost most.
var hostileChannels = []string{edited, giant}

// hostile is the load that is legal and costs the most.
type hostile struct {
	// EditEvery is the mean pause between two edits of the message in edited.
	EditEvery time.Duration
	// GiantEvery is the mean pause between two messages of 64 KiB.
	GiantEvery time.Duration
	// Slow and Withheld are per node: clients that read a stream slowly, and responses at a time that
	// nobody reads.
	Slow, Withheld int
	// Idle is the number of channels that are followed on each node without a message.
	Idle int
}

// perStream is the most channels of a stream.
const perStream = 500

func idle(i int) string { return fmt.Sprintf("idle-%04d", i) }

// startHostile starts the hostile load.
func (r *run) startHostile(writeCtx, followCtx context.Context) {
	e := r.newRawWriter(r.Seed, "editor", r.addrs[0], "editor")
	r.writing.Go(func() { e.edit(writeCtx, r.load.EditEvery) })
	g := r.newRawWriter(r.Seed, "giant", r.addrs[len(r.addrs)-1], "giant")
	r.writing.Go(func() { g.sendGiants(writeCtx, r.load.GiantEvery) })
	for i, addr := range r.addrs {
		for k := range r.load.Slow {
			s := r.newRawSubscriber(fmt.Sprintf("slow-%d-%d", i, k), addr, 0, []string{hot, edited, giant})
			s.client, s.pauses = newRawOn(slowConn(addr, r.token("slow"))), chaos.Source(r.Seed, s.name)
			r.writing.Go(func() { s.run(writeCtx) })
		}
		for k := range r.load.Withheld {
			name := fmt.Sprintf("withheld-%d-%d", i, k)
			w := &withholder{world: r.world, conn: slowConn(addr, r.token("withholder")), rng: chaos.Source(r.Seed, name)}
			r.writing.Go(func() { w.run(writeCtx) })
		}
		for from := 0; from < r.load.Idle; from += perStream {
			var channels []string
			for k := from; k < min(from+perStream, r.load.Idle); k++ {
				channels = append(channels, idle(k))
			}
			s := r.newRawSubscriber(fmt.Sprintf("idle-%d-%d", i, from), addr, unset, channels)
			r.followers = append(r.followers, s)
			r.following.Go(func() { s.run(followCtx) })
		}
	}
}

// woken returns the idle channels that get a message at the end of the run.
func (l *load) woken() []string {
	var channels []string
	for i := 0; i < l.Idle; i += max(1, l.Idle/8) {
		channels = append(channels, idle(i))
	}
	return channels
}

// edit edits one message again and again until ctx ends. After its recall it edits another one.
func (w *rawWriter) edit(ctx context.Context, every time.Duration) {
	defer w.client.Close()
	var target string
	for chaos.Pause(ctx, w.rng, every) {
		w.n++
		op := Op{
			Client: w.name, Addr: w.addr, Kind: Edit, Limit: int64(rawLimit), Channel: edited, From: w.subject, MsgID: target,
			ClientMsgID: fmt.Sprintf("%s-%d", w.name, w.n), After: unset, Before: unset,
		}
		op.Content = markOf(op.ClientMsgID) + strings.Repeat("e", w.rng.IntN(1000))
		if target == "" {
			op.Kind = Send
		}
		w.rec.Start(&op)
		w.call(context.WithoutCancel(ctx), &op)
		switch {
		case op.Kind == Send && op.Outcome == chaos.OK:
			target = op.MsgID
		case op.Outcome == chaos.Failed:
			target = "" // a moderator has recalled it
		}
		if op.Outcome == chaos.Unknown && !chaos.Sleep(ctx, chaos.AfterFailure) {
			return
		}
	}
}

// The largest message.
const (
	mostContent  = 65536
	mostMetadata = 16
	mostValue    = 256
)

// sendGiants sends messages of the largest size until ctx ends.
func (w *rawWriter) sendGiants(ctx context.Context, every time.Duration) {
	defer w.client.Close()
	for chaos.Pause(ctx, w.rng, every) {
		w.n++
		op := Op{
			Client: w.name, Addr: w.addr, Kind: Send, Limit: int64(rawLimit), Channel: giant, From: w.subject,
			ClientMsgID: fmt.Sprintf("%s-%d", w.name, w.n), After: unset, Before: unset, Metadata: make(map[string]string),
		}
		mark := markOf(op.ClientMsgID)
		op.Content = mark + strings.Repeat("g", mostContent-len(mark))
		for i := range mostMetadata {
			op.Metadata[fmt.Sprintf("%064d", i)] = strings.Repeat("m", mostValue)
		}
		w.rec.Start(&op)
		w.call(context.WithoutCancel(ctx), &op)
		if op.Outcome == chaos.Unknown && !chaos.Sleep(ctx, chaos.AfterFailure) {
			return
		}
	}
}

// slowWindow is the HTTP/2 window of a client that reads slowly.
const slowWindow = 64 << 10

// slowConn returns a Conn with a small HTTP/2 window, which is shut as soon as its client does not
// read.
func slowConn(addr, token string) *chaos.Conn {
	c := chaos.NewConn(addr, token)
	if t, ok := c.HTTP.Transport.(*http.Transport); ok {
		t.HTTP2.MaxReceiveBufferPerStream = slowWindow
		t.HTTP2.MaxReceiveBufferPerConnection = slowWindow
	}
	return c
}

// withholder makes calls with large responses and does not read these for a while.
type withholder struct {
	*world

	conn *chaos.Conn
	rng  *rand.Rand
}

func (w *withholder) run(ctx context.Context) {
	defer w.conn.Close()
	for chaos.Pause(ctx, w.rng, time.Second) {
		w.call(ctx)
	}
}

// call requests a page of the largest messages, and closes the response unread after some seconds.
func (w *withholder) call(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := fmt.Sprintf(`{"channelId":%q,"pageSize":40}`, giant)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.conn.URL()+"/parley.v1.MessageService/ListMessages",
		bytes.NewBufferString(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.conn.Token())
	resp, err := w.conn.HTTP.Do(req)
	if err != nil {
		return // of a node that is down
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 1000)
	chaos.Sleep(ctx, 2*time.Second+time.Duration(w.rng.Int64N(int64(4*time.Second))))
	_ = resp.Body.Close()
}
