package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/chaos"
)

// changeStream is the name of the NATS stream of change events.
const changeStream = "message_change_events"

// Published is one event of the change stream.
type Published struct {
	// At is when the stream stored the event, in nanoseconds since 1970, and Number its number there.
	At     int64  `json:"at"`
	Number uint64 `json:"number"`
	// Event is "insert", "edit" or "recall".
	Event       string            `json:"event_type"`
	Epoch       string            `json:"epoch"`
	Seq         int64             `json:"seq"`
	TargetSeq   int64             `json:"target_seq"`
	Channel     string            `json:"channel_id"`
	MsgID       string            `json:"msg_id"`
	Count       int64             `json:"count"`
	MsgCount    int64             `json:"msg_count"`
	From        string            `json:"from_id"`
	Type        string            `json:"msg_type"`
	Content     string            `json:"content"`
	Metadata    map[string]string `json:"metadata"`
	ClientMsgID string            `json:"client_msg_id"`
	MsgTime     time.Time         `json:"msg_time"`
	Status      Status            `json:"status"`
	ChangedSeq  int64             `json:"changed_seq"`
}

// openStream returns the change stream. It waits up to 30 seconds until the NATS server's streams
// are available: a server that has just restarted first answers that there are no responders.
func openStream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		stream, err := js.Stream(ctx, changeStream)
		if !errors.Is(err, nats.ErrNoResponders) || !chaos.Sleep(ctx, 100*time.Millisecond) {
			return stream, err
		}
	}
}

// readPublished reads the whole change stream, and returns up to which number it has dropped
// events, or some of them. While the stream's servers elect a leader, nobody responds; it then
// starts again from the beginning, for up to a minute.
func readPublished(ctx context.Context, url string) (all []Published, dropped uint64, err error) {
	deadline := time.Now().Add(time.Minute)
	for {
		all, dropped, err := readStream(ctx, url)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) || !chaos.Sleep(ctx, 100*time.Millisecond) {
			return all, dropped, err
		}
	}
}

// readStream is readPublished without the retries.
func readStream(ctx context.Context, url string) (all []Published, dropped uint64, err error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, 0, err
	}
	stream, err := openStream(ctx, js)
	if err != nil {
		return nil, 0, err
	}
	last := stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, 0, err
	}
	for at := uint64(0); at < last; {
		batch, err := consumer.Fetch(1000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, 0, err
		}
		before := at
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return nil, 0, err
			}
			p := Published{At: meta.Timestamp.UnixNano()}
			if err := json.Unmarshal(msg.Data(), &p); err != nil {
				return nil, 0, fmt.Errorf("event %d: %w", meta.Sequence.Stream, err)
			}
			p.At, p.Number = meta.Timestamp.UnixNano(), meta.Sequence.Stream
			if p.Number > at+1 {
				// After a full disk the first of the dropped events may be back, so the last hole counts.
				dropped = p.Number - 1
			}
			at = p.Number
			if !own(p.Channel) {
				all = append(all, p)
			}
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return nil, 0, err
		}
		if at == before {
			return nil, 0, fmt.Errorf("the stream ends at %d, but the last event read is %d", last, at)
		}
	}
	return all, dropped, nil
}

// checkPublished checks the change stream: it must have every entry of every log, with the message
// in its state then or later, and no text that was published after its recall. If the stream was
// full, it may lack the first entries of each log: those before the first event that it did not
// drop.
func (c *checker) checkPublished() {
	has := make(map[messageKey]bool)
	first := make(map[string]int64) // the first entry that the stream has, by channel
	kinds := map[int]string{
		entrySend: "insert", entryEdit: "edit", entryRecall: "recall", entryComplete: "complete", entryCancel: "cancel", entryFail: "fail",
	}
	for i := range c.t.Published {
		p := &c.t.Published[i]
		has[messageKey{p.Channel, p.Seq}] = true
		if at, ok := first[p.Channel]; p.Number > c.t.Dropped && (!ok || p.Seq < at) {
			first[p.Channel] = p.Seq
		}
		log := c.logs[p.Channel]
		if p.Seq < 1 || p.Seq > int64(len(log)) {
			c.Reportf(Loss, p.Channel, p.At-c.h.Began, "%d was published; the log ends at %d", p.Seq, len(log))
			continue
		}
		e := &log[p.Seq-1]
		about := e.Seq
		cp := Copy{
			Channel: p.Channel, MsgID: p.MsgID, Seq: p.Seq, Count: p.Count, From: p.From, Type: p.Type, Content: p.Content,
			Metadata: p.Metadata, ClientMsgID: p.ClientMsgID, TimeMS: p.MsgTime.UnixMilli(), Status: p.Status,
			ChangedSeq: p.ChangedSeq,
		}
		if e.Kind != entrySend {
			about = e.TargetSeq
			cp.Seq, cp.Count = p.TargetSeq, p.MsgCount
		}
		if diff := c.differs(&cp); p.Event != kinds[e.Kind] || cp.Seq != about || p.Count != e.Count || p.ChangedSeq < e.Seq {
			c.Reportf(WrongCopy, p.Channel, p.At-c.h.Began, "published as %+v; the log has %+v", *p, *e)
		} else if diff != "" {
			c.Reportf(WrongCopy, p.Channel, p.At-c.h.Began, "published as %+v: %s", *p, diff)
		}
		c.checkPublishedText(p, about)
	}
	if c.h.Touched == 0 {
		return
	}
	newest, full := c.wasFull()
	for channel, log := range c.logs {
		for i := range log {
			// What was sent after the first event that was kept cannot have been dropped before it.
			old := log[i].Time.UnixNano() <= newest
			if at, ok := first[channel]; full && old && (!ok || log[i].Seq < at) {
				continue
			}
			if !has[messageKey{channel, log[i].Seq}] {
				c.Reportf(Unpublished, channel, 0, "the change stream lacks %d: %+v", log[i].Seq, log[i])
			}
		}
	}
}

func (c *checker) checkPublishedText(p *Published, about int64) {
	s := c.messages[messageKey{p.Channel, about}]
	if s == nil || s.recallAcked == 0 || p.ChangedSeq >= s.recalled {
		return
	}
	at := p.At - c.h.Began
	if late := at - s.recallAcked; late > int64(liveSlack) && !c.held("", s.recallAcked, at) {
		c.Reportf(Recalled, p.Channel, at, "the text of %d was published with %d %.1fs after its recall was acknowledged", about, p.Seq,
			time.Duration(late).Seconds())
	}
}

// unreadFor is how old an event can be that the nodes have not read, because NATS or MongoDB was
// away.
const unreadFor = int64(time.Minute)

// maybeUnread returns the entries whose events a full stream may have dropped before any node read
// them.
func (c *checker) maybeUnread() map[messageKey]bool {
	newest, full := c.wasFull()
	if !full {
		return nil
	}
	unread := make(map[messageKey]bool)
	for channel, log := range c.logs {
		for i := range log {
			if at := log[i].Time.UnixNano(); at <= newest && at > newest-unreadFor {
				unread[messageKey{channel, log[i].Seq}] = true
			}
		}
	}
	for i := range c.t.Published {
		delete(unread, messageKey{c.t.Published[i].Channel, c.t.Published[i].Seq})
	}
	return unread
}

// wasFull reports whether a full stream explains that events were dropped: a limit of its bytes was
// in force when it stored the first event that it kept, or later. newest is the latest time that an
// entry can have whose event was dropped, in nanoseconds since 1970.
func (c *checker) wasFull() (newest int64, full bool) {
	i := slices.IndexFunc(c.t.Published, func(p Published) bool { return p.Number > c.t.Dropped })
	if c.t.Dropped == 0 || i < 0 {
		return 0, false
	}
	kept := c.t.Published[i].At
	newest = kept + int64(time.Second)
	if c.clockMoved(kept-c.h.Began, kept-c.h.Began) {
		newest += int64(chaos.ClockOffset) // entries have their times from the nodes
	}
	return newest, slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return f.Name == string(chaos.NATSBytes) && kept-c.h.Began <= f.End
	})
}
