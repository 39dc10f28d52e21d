package messages

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// goneSession returns the channel of the n-th session that is deleted. Such sessions have a client,
// records and a check of their own: their logs in the store are not complete.
func goneSession(n int) string { return fmt.Sprintf("%s%d", gonePrefix, n) }

const gonePrefix = sessionPrefix + "gone-"

// Deletion is a session that was filled and deleted, and what happened to it afterwards.
type Deletion struct {
	Channel string `json:"channel"`
	// Marks are those of all texts that were sent to the session.
	Marks []string `json:"marks"`
	// Begin is when the first call to delete the session began. End is when one was acknowledged, or
	// 0.
	Begin int64 `json:"begin"`
	End   int64 `json:"end,omitempty"`
	// Afters are the calls after End, and Seen is when a stream from before last showed a text.
	Afters []After `json:"afters,omitempty"`
	Seen   int64   `json:"seen,omitempty"`
	Addr   string  `json:"addr"` // of the stream
}

// After is a call to a session that is deleted: a Send or a List.
type After struct {
	Addr    string        `json:"addr"`
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	Code    string        `json:"code,omitempty"`
	// Shown is set if the answer has a text.
	Shown bool `json:"shown,omitempty"`
}

// deleter fills sessions and deletes them, one after another.
type deleter struct {
	*generator
}

func (r *run) newDeleter() *deleter {
	return &deleter{r.newGenerator(r.Seed, "deleter", 0)}
}

func (d *deleter) run(ctx context.Context) {
	defer d.close()
	for chaos.Pause(ctx, d.rng, 2*time.Second) {
		if d.load.KillFor == 0 || time.Since(d.began) < d.load.KillFor {
			d.one(context.WithoutCancel(ctx))
		}
	}
}

// one fills one session, deletes it, and uses it afterwards.
func (d *deleter) one(ctx context.Context) {
	d.n++
	gone := Deletion{Channel: goneSession(d.n)}
	node := d.rng.IntN(len(d.writers))
	filled := 0
	for i := range 3 {
		cmid := fmt.Sprintf("deleter-%d-%d", d.n, i)
		gone.Marks = append(gone.Marks, cmid)
		if d.send(ctx, node, gone.Channel, cmid) {
			filled++
		}
	}
	mark := fmt.Sprintf("deleter-%d-open", d.n)
	gone.Marks = append(gone.Marks, mark)
	if filled == 0 || !d.stream(ctx, node, gone.Channel, mark) {
		return
	}
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer func() {
		stop()
		watching.Wait()
		d.rec.Write(line{Deletion: &gone})
	}()
	watcher := d.writers[(node+1)%len(d.writers)]
	gone.Addr = watcher.addr
	watching.Go(func() { gone.Seen = d.watch(watch, watcher, gone.Channel) })
	chaos.Sleep(ctx, 500*time.Millisecond)
	if !d.delete(ctx, node, &gone) {
		return
	}
	for _, wait := range []time.Duration{1500 * time.Millisecond, 2 * time.Second} {
		chaos.Sleep(ctx, wait)
		for k, w := range d.writers {
			gone.Afters = append(gone.Afters, d.list(ctx, w, gone.Channel))
			if k == 0 {
				gone.Afters = append(gone.Afters, d.after(ctx, w, gone.Channel))
			}
		}
	}
}

// send appends a message to a session as its owner, and reports whether it was acknowledged.
func (d *deleter) send(ctx context.Context, node int, channel, cmid string) bool {
	id, _ := sessionOf(channel)
	w := d.writers[node]
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	_, err := w.client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
		SessionId: id, Content: text(d.rng, cmid), ClientMsgId: cmid,
	})
	return err == nil
}

// stream opens a message and streams the begin of its text. It reports whether that succeeded.
func (d *deleter) stream(ctx context.Context, node int, channel, mark string) bool {
	id, _ := sessionOf(channel)
	w := d.writers[node]
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	res, err := w.client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
		SessionId: id, Role: "assistant", ClientMsgId: mark, Open: true,
	})
	if err != nil {
		return false
	}
	_, err = w.client.AppendSessionDelta(ctx, &parleyv1.AppendSessionDeltaRequest{
		SessionId: id, MsgId: res.GetMsgId(), AppendToken: res.GetAppendToken(), Text: markOf(mark),
	})
	return err == nil
}

// watch follows a session until ctx ends, and returns when it last got a text.
func (d *deleter) watch(ctx context.Context, w *rawWriter, channel string) (seen int64) {
	client := newRaw(w.addr, w.client.Token())
	defer client.Close()
	req := &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: channel, AfterSeq: new(int64(0))}}}
	client.follow(ctx, req, func(_ *time.Timer, res *parleyv1.SubscribeResponse) bool {
		for _, e := range res.GetEvents().GetEvents() {
			if strings.Contains(e.GetSent().GetContent()+e.GetEdited().GetContent()+e.GetClosed().GetContent()+e.GetDelta().GetText(), markBegin) {
				seen = d.rec.Now()
			}
		}
		return true
	})
	return seen
}

// delete deletes the session, and reports whether that was acknowledged.
func (d *deleter) delete(ctx context.Context, node int, gone *Deletion) bool {
	id, _ := sessionOf(gone.Channel)
	gone.Begin = d.rec.Now()
	for began := time.Now(); time.Since(began) < 30*time.Second; node++ {
		w := d.writers[node%len(d.writers)]
		call, cancel := w.client.Call(ctx, rawLimit)
		_, err := w.client.DeleteSession(call, &parleyv1.DeleteSessionRequest{SessionId: id})
		cancel()
		if err == nil {
			gone.End = d.rec.Now()
			return true
		}
		chaos.Sleep(ctx, chaos.AfterFailure)
	}
	return false
}

// list lists the deleted session.
func (d *deleter) list(ctx context.Context, w *rawWriter, channel string) After {
	a := After{Addr: w.addr, Kind: List, Begin: d.rec.Now()}
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	res, err := w.client.page(ctx, &parleyv1.ListMessagesRequest{ChannelId: channel})
	a.ended(d.rec.Now(), err)
	for _, m := range res.GetMessages() {
		a.Shown = a.Shown || m.GetContent() != ""
	}
	return a
}

// after appends to the deleted session.
func (d *deleter) after(ctx context.Context, w *rawWriter, channel string) After {
	a := After{Addr: w.addr, Kind: Send, Begin: d.rec.Now()}
	id, _ := sessionOf(channel)
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	_, err := w.client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "late"})
	a.ended(d.rec.Now(), err)
	return a
}

func (a *After) ended(at int64, err error) {
	e := chaos.EndingOf(err)
	a.End, a.Outcome, a.Code = at, e.Outcome, e.Code
}
