package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

// forward is those drafts of one Append whose home is one node. They go there in pieces, one after another and in their
// order, so what is stored of a channel stays a prefix of what was asked. From the first trouble on this node appends
// the rest itself. It belongs to one goroutine.
type forward struct {
	writer *Writer
	node   string
	drafts []message.Draft
	outs   []message.Outcome

	// doubtful are the channels of which the home may have got drafts that it has not answered for, and may append them at
	// any later time.
	doubtful map[string]bool
	// failed are the channels that met a failure which may pass: nothing may be stored of their later drafts.
	failed map[string]bool
}

// run gives every draft its outcome.
func (f *forward) run(ctx context.Context) {
	if f.node == f.writer.endpoint.ID() {
		f.outs = f.writer.local.Append(ctx, f.drafts)
		return
	}
	f.outs = make([]message.Outcome, len(f.drafts))
	f.doubtful, f.failed = make(map[string]bool), make(map[string]bool)
	open := make([]int, len(f.drafts)) // the drafts that have no outcome yet
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		if f.writer.shuns(f.node) {
			f.writer.cfg.OnForward(ForwardShunned)
			f.appendHere(ctx, open)
			return
		}
		piece, rest, request := f.cut(open)
		if len(piece) == 0 {
			return
		}
		outs, err := f.ask(ctx, piece, request)
		if err != nil {
			f.appendHere(ctx, append(piece, rest...))
			return
		}
		again := f.take(piece, outs)
		if len(again) > 0 {
			f.writer.cfg.OnForward(ForwardRefused)
			if ctx.Err() == nil {
				f.writer.shun(f.node)
			}
			f.appendHere(ctx, append(again, rest...))
			return
		}
		f.writer.cfg.OnForward(ForwardAnswered)
		open = rest
	}
}

// cut takes as many drafts as may be forwarded at once, and at least one, and settles those of failed channels.
func (f *forward) cut(open []int) (piece, rest []int, request *clusterv1.AppendRequest) {
	request = &clusterv1.AppendRequest{}
	size := 0
	for n, i := range open {
		if f.settleFailed(i) {
			continue
		}
		d := draftToWire(&f.drafts[i])
		size += proto.Size(d) + 8 // the field's own bytes
		if len(piece) > 0 && size > f.writer.cfg.PieceBytes {
			return piece, open[n:], request
		}
		piece = append(piece, i)
		request.Drafts = append(request.Drafts, d)
	}
	return piece, nil, request
}

// ask sends a piece to its home and waits for the outcomes. With an error the home may have got it, and then the piece's
// channels are doubtful.
func (f *forward) ask(ctx context.Context, piece []int, request *clusterv1.AppendRequest) ([]*clusterv1.Outcome, error) {
	w := f.writer
	asking, cancel := context.WithTimeout(ctx, max(w.cfg.Wait, w.cfg.MaxWait))
	defer cancel()
	defer w.giveUpOn(f.node, cancel)()
	response, err := cluster.Call(asking, w.endpoint, f.node, appendDrafts, request)
	if errors.Is(err, cluster.ErrNobody) {
		w.cfg.OnForward(ForwardNobody)
		return nil, err
	}
	if err == nil && len(response.GetOutcomes()) != len(piece) {
		err = fmt.Errorf("%d outcomes for %d drafts", len(response.GetOutcomes()), len(piece))
	}
	if err == nil {
		return response.GetOutcomes(), nil
	}
	w.cfg.OnForward(ForwardUnanswered)
	for _, i := range piece {
		f.doubtful[f.drafts[i].ChannelID] = true
	}
	if ctx.Err() == nil { // it is not the caller who was in a hurry
		w.shun(f.node)
		w.cfg.Logger.WarnContext(ctx, "a home node did not answer; this node writes", "home", f.node, "error", err)
	}
	return nil, err
}

// giveUpOn calls cancel once a node has been silent, or unable, for Wait, until stop.
func (w *Writer) giveUpOn(node string, cancel func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		look := time.NewTimer(w.cfg.Wait)
		defer look.Stop()
		for {
			select {
			case <-done:
				return
			case <-look.C:
			}
			if !w.owners.Works(node, w.cfg.Wait) {
				cancel()
				return
			}
			look.Reset(w.cfg.Wait / 4)
		}
	}()
	return func() { close(done) }
}

// take settles drafts with what their home made of them. It gives those that are to be appended here after all: in a
// channel from the first that the home could not store for a reason of its own, all that have no final outcome.
func (f *forward) take(piece []int, outs []*clusterv1.Outcome) (again []int) {
	here := make(map[string]bool)
	for n, i := range piece {
		id := f.drafts[i].ChannelID
		f.outs[i] = outcomeFromWire(outs[n], id)
		e, ok := fault.As(f.outs[i].Err)
		if !ok || !e.Retryable() {
			continue
		}
		if !f.failed[id] && homesOwn(e.Reason) {
			here[id] = true
		}
		if !here[id] {
			f.failed[id] = true
			continue
		}
		if e.Reason == fault.OutcomeUnknown {
			f.doubtful[id] = true
		}
		again = append(again, i)
	}
	return again
}

// homesOwn reports whether a failure may be the home's alone: it ends, its time for this piece is over, or it can't reach
// the store. Another node may do better. A home that has too much to do is not to be helped by that.
func homesOwn(reason fault.Reason) bool {
	switch reason {
	case fault.ShuttingDown, fault.DeadlinePassed, fault.OutcomeUnknown, fault.StoreUnavailable:
		return true
	default:
		return false
	}
}

// settleFailed settles a draft of a failed channel.
func (f *forward) settleFailed(i int) bool {
	if !f.failed[f.drafts[i].ChannelID] {
		return false
	}
	f.outs[i] = message.Outcome{Err: fault.New(fault.Aborted, fault.BatchAborted,
		"an earlier item of the channel failed; nothing of this one was stored")}
	return true
}

// appendHere appends drafts by this node. What fails now and may have reached the home is of unknown outcome: the home
// may be asleep and append it when it wakes.
func (f *forward) appendHere(ctx context.Context, open []int) {
	var at []int
	var drafts []message.Draft
	for _, i := range open {
		if !f.settleFailed(i) {
			at, drafts = append(at, i), append(drafts, f.drafts[i])
		}
	}
	if len(drafts) == 0 {
		return
	}
	for n, out := range f.writer.local.Append(ctx, drafts) {
		if e, ok := fault.As(out.Err); ok && e.Retryable() && f.doubtful[drafts[n].ChannelID] {
			out.Err = unsureEntry(e)
		}
		f.outs[at[n]] = out
	}
}

func unsureEntry(cause *fault.Error) *fault.Error {
	e := fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
		"it is not known whether the entry was stored: repeat with the same client_msg_id")
	e.RetryAfter = cause.RetryAfter
	return e
}
