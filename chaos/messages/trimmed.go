package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// trimmedChannels is the number of channels whose messages expire, and keep the number of
	// messages that each keeps.
	trimmedChannels = 2
	keep            = 200
	// keepMore is how many messages more a channel may show: a tenth, or 100.
	keepMore = 100
)

// trimmed returns the name of a channel whose messages expire. Such channels have a client, records
// and a check of their own: their logs in the store are not complete.
func trimmed(i int) string { return fmt.Sprintf("trimmed-%d", i) }

// Trim is a call of the client of a channel whose messages expire, and its result. It is a send, a
// list of all that the channel has, or a stream from the channel's beginning.
type Trim struct {
	Channel string `json:"channel"`
	Addr    string `json:"addr"`
	// Kind is Send, List or Update; the latter is the stream.
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	Err     string        `json:"err,omitempty"`
	// ClientMsgID is a send's, and Seq and Duplicate are its answer. Repeat is set if an earlier send
	// with this id was answered.
	ClientMsgID string `json:"cmid,omitempty"`
	Repeat      bool   `json:"repeat,omitempty"`
	Seq         int64  `json:"seq,omitempty"`
	Duplicate   bool   `json:"duplicate,omitempty"`
	// Oldest is the oldest entry that can be read, as the first page or the state of the stream told
	// it, and Seqs are the messages from then on. Final is set for the list after all faults.
	Oldest int64   `json:"oldest,omitempty"`
	Seqs   []int64 `json:"seqs,omitempty"`
	Final  bool    `json:"final,omitempty"`
}

// trimmer is the only client of one channel whose messages expire.
type trimmer struct {
	*world

	channel string
	clients []*raw
	rng     *rand.Rand
	n       int
	acked   []string // the client_msg_ids of answered sends
	open    []string // those of sends that were not answered yet
}

func (r *run) newTrimmer(i int) *trimmer {
	t := &trimmer{world: r.world, channel: trimmed(i), rng: chaos.Source(r.Seed, trimmed(i))}
	for _, addr := range r.Addrs(i) {
		t.clients = append(t.clients, newRaw(addr, r.token("trimmer")))
	}
	return t
}

// create creates the channel with its retention.
func (t *trimmer) create(ctx context.Context) error {
	ctx, cancel := t.clients[0].Call(ctx, 10*time.Second)
	defer cancel()
	_, err := t.clients[0].CreateChannel(ctx, &parleyv1.CreateChannelRequest{
		ChannelId: t.channel, Retention: &parleyv1.ChannelRetention{MaxMessages: keep},
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", t.channel, err)
	}
	return nil
}

func (t *trimmer) run(ctx context.Context) {
	for chaos.Pause(ctx, t.rng, 400*time.Millisecond) {
		ctx := context.WithoutCancel(ctx)
		c := t.clients[t.rng.IntN(len(t.clients))]
		ok := t.send(ctx, c, t.batch())
		switch t.rng.IntN(8) {
		case 0:
			t.list(ctx, c, false)
		case 1:
			t.stream(ctx, c)
		case 2:
			if len(t.acked) > 0 {
				t.send(ctx, c, t.acked[t.rng.IntN(len(t.acked)):][:1])
			}
		}
		if !ok {
			chaos.Sleep(ctx, chaos.AfterFailure)
		}
	}
}

// finish sends once more, and what was not answered again. It then lists the channel until that
// has expired what it must, for up to a minute, and closes the clients.
func (t *trimmer) finish(ctx context.Context) {
	defer func() {
		for _, c := range t.clients {
			c.Close()
		}
	}()
	// At least one, because an event that was lost keeps the retention waiting for the next message;
	// and enough for messages to expire, however short the run was.
	for again := true; again; again = (len(t.open) > 0 || len(t.acked) < 3*keep) && ctx.Err() == nil {
		t.send(ctx, t.clients[0], t.batch())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		n, ok := t.list(context.WithoutCancel(ctx), t.clients[0], true)
		if ok && n <= keep+keepMore || !chaos.Sleep(ctx, 500*time.Millisecond) {
			return
		}
	}
}

// batch returns the ids of the next sends: those that were not answered, or 20 new ones.
func (t *trimmer) batch() []string {
	for range 20 {
		if len(t.open) >= 20 {
			break
		}
		t.n++
		t.open = append(t.open, fmt.Sprintf("%s-%d", t.channel, t.n))
	}
	return t.open
}

// send sends or repeats messages in one call, and reports whether all were answered.
func (t *trimmer) send(ctx context.Context, c *raw, ids []string) bool {
	req := &parleyv1.SendMessagesRequest{}
	for _, id := range ids {
		req.Messages = append(req.Messages, &parleyv1.SendMessageRequest{ChannelId: t.channel, ClientMsgId: id, Content: id})
	}
	repeat := len(t.open) == 0 || ids[0] != t.open[0]
	begin := t.rec.Now()
	ctx, cancel := c.Call(ctx, rawLimit)
	defer cancel()
	res, err := c.SendMessages(ctx, req)
	end := t.rec.Now()
	var open []string
	for i, id := range ids {
		call := Trim{Channel: t.channel, Addr: c.Addr, Kind: Send, Begin: begin, End: end, ClientMsgID: id, Repeat: repeat}
		call.Outcome = chaos.Unknown
		if err != nil {
			call.Err = err.Error()
		} else if sent := res.GetResults()[i].GetSent(); sent != nil {
			call.Outcome, call.Seq, call.Duplicate = chaos.OK, sent.GetSeq(), sent.GetDuplicate()
		} else {
			call.Err = res.GetResults()[i].GetError().String()
		}
		t.rec.Write(line{Trim: &call})
		if repeat {
			continue
		}
		if call.Outcome == chaos.OK {
			t.acked = append(t.acked, id)
		} else {
			open = append(open, id)
		}
	}
	if !repeat {
		t.open = open
	}
	return len(open) == 0
}

// list reads all that the channel has, from its beginning, and returns the number of messages. ok
// is false if a call failed.
func (t *trimmer) list(ctx context.Context, c *raw, final bool) (n int, ok bool) {
	call := Trim{Channel: t.channel, Addr: c.Addr, Kind: List, Begin: t.rec.Now(), Outcome: chaos.OK, Final: final}
	req := &parleyv1.ListMessagesRequest{ChannelId: t.channel, AfterSeq: new(int64), PageSize: 100}
	for first := true; first || req.GetPageToken() != ""; first = false {
		ctx, cancel := c.Call(ctx, readLimit)
		res, err := c.ListMessages(ctx, req)
		cancel()
		if err != nil {
			call.Outcome, call.Err = chaos.Unknown, err.Error()
			break
		}
		if first {
			call.Oldest = res.GetOldestSeq()
		}
		for _, m := range res.GetMessages() {
			call.Seqs = append(call.Seqs, m.GetSeq())
		}
		req.PageToken = res.GetNextPageToken()
	}
	call.End = t.rec.Now()
	t.rec.Write(line{Trim: &call})
	return len(call.Seqs), call.Outcome == chaos.OK
}

// stream follows the channel from its beginning for up to two seconds, and at most up to the head
// that the state told. A gap on the way begins the record again.
func (t *trimmer) stream(ctx context.Context, c *raw) {
	ctx, cancel := c.Call(ctx, 2*time.Second)
	defer cancel()
	call := Trim{Channel: t.channel, Addr: c.Addr, Kind: Update, Begin: t.rec.Now(), Outcome: chaos.Unknown}
	stream, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: t.channel, AfterSeq: new(int64)}},
	})
	if err != nil {
		return
	}
	defer func() {
		cancel()
		_ = stream.Close()
	}()
	for head := int64(-1); stream.Receive(); {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			switch {
			case e.GetState() != nil:
				head, call.Oldest, call.Outcome = e.GetState().GetHeadSeq(), e.GetState().GetOldestSeq(), chaos.OK
			case e.GetGap() != nil:
				call.Oldest, call.Seqs = max(call.Oldest, e.GetSeq()+1), nil
			case e.GetSent() != nil:
				call.Seqs = append(call.Seqs, e.GetSeq())
			}
			if head >= 0 && e.GetSeq() >= head && e.GetSent() != nil {
				cancel()
			}
		}
	}
	call.End = t.rec.Now()
	t.rec.Write(line{Trim: &call})
}
