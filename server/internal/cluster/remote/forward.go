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

// forward appends those drafts of one Append that have the same home node. It sends them there in
// pieces, one after another and in order, so the stored entries of a channel are always a prefix of
// its drafts. After the first failure this node appends the rest itself. A forward belongs to one
// goroutine.
type forward struct {
	writer *Writer
	node   string
	drafts []message.Draft
	outs   []message.Outcome

	// doubtful holds the channels of drafts that the home may have received but has not answered.
	// It may append them at any later time.
	doubtful map[string]bool
	// failed holds the channels with a retryable failure. Their later drafts must not be stored.
	failed map[string]bool
	// stale holds, for the channels of which a draft was handed back, the outcome of that draft.
	stale map[string]message.Outcome
}

// run appends the drafts, on their home or on this node, and blocks until every draft has an
// outcome.
func (f *forward) run(ctx context.Context) {
	if f.node == f.writer.endpoint.ID() {
		f.outs = f.writer.local.Append(ctx, f.drafts)
		return
	}
	f.outs = make([]message.Outcome, len(f.drafts))
	f.doubtful, f.failed, f.stale = make(map[string]bool), make(map[string]bool), make(map[string]message.Outcome)
	open := make([]int, len(f.drafts)) // the drafts without an outcome
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		if f.writer.shuns(f.node) {
			f.writer.cfg.OnForward(ForwardShunned)
			f.appendHere(ctx, open)
			return
		}
		piece, rest, request := f.nextPiece(open)
		if len(piece) == 0 {
			return
		}
		outs, err := f.send(ctx, piece, request)
		if err != nil {
			f.appendHere(ctx, append(piece, rest...))
			return
		}
		retryHere := f.applyOutcomes(piece, outs)
		if len(retryHere) > 0 {
			f.writer.cfg.OnForward(ForwardRefused)
			if ctx.Err() == nil {
				f.writer.shun(f.node)
			}
			f.appendHere(ctx, append(retryHere, rest...))
			return
		}
		f.writer.cfg.OnForward(ForwardAnswered)
		open = rest
	}
}

// nextPiece takes as many drafts without an outcome as one request may carry, at least one. open,
// piece and rest are indexes of drafts. A draft of a failed channel gets its outcome here and is in
// neither result.
func (f *forward) nextPiece(open []int) (piece, rest []int, request *clusterv1.AppendRequest) {
	request = &clusterv1.AppendRequest{}
	size := 0
	for n, i := range open {
		if f.settleFailed(i) {
			continue
		}
		d := draftToWire(&f.drafts[i])
		size += proto.Size(d) + 8 // the field's tag and length
		if len(piece) > 0 && size > f.writer.cfg.PieceBytes {
			return piece, open[n:], request
		}
		piece = append(piece, i)
		request.Drafts = append(request.Drafts, d)
	}
	return piece, nil, request
}

// send sends a piece to its home and waits for the outcomes. After an error other than
// ErrNoResponder the home may have received the piece, and send has added the piece's channels to
// doubtful.
func (f *forward) send(ctx context.Context, piece []int, request *clusterv1.AppendRequest) ([]*clusterv1.Outcome, error) {
	w := f.writer
	asking, cancel := context.WithTimeout(ctx, max(w.cfg.Wait, w.cfg.MaxWait))
	defer cancel()
	defer w.cancelIfSilent(f.node, cancel)()
	response, err := cluster.Call(asking, w.endpoint, f.node, appendDrafts, request)
	if errors.Is(err, cluster.ErrNoResponder) {
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
	if ctx.Err() == nil { // the caller's own deadline is not the home's fault
		w.shun(f.node)
		w.cfg.Logger.WarnContext(ctx, "home node did not answer, appending on this node", "home_id", f.node, "error", err)
	}
	return nil, err
}

// cancelIfSilent starts a goroutine that calls cancel once a node has not announced for Wait that
// it is able. stop ends the goroutine and must be called once.
func (w *Writer) cancelIfSilent(node string, cancel func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		timer := time.NewTimer(w.cfg.Wait)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			if !w.owners.RecentlyAble(node, w.cfg.Wait) {
				cancel()
				return
			}
			timer.Reset(w.cfg.Wait / 4)
		}
	}()
	return func() { close(done) }
}

// applyOutcomes sets the outcomes that a home returned. It returns the indexes of the drafts that
// this node must append instead: in each channel those with a retryable failure, beginning with the
// first for which homeSpecific is true.
func (f *forward) applyOutcomes(piece []int, outs []*clusterv1.Outcome) (retryHere []int) {
	here := make(map[string]bool)
	for n, i := range piece {
		id := f.drafts[i].ChannelID
		f.outs[i] = outcomeFromWire(outs[n], id)
		if f.outs[i].StaleRev > 0 {
			f.stale[id] = f.outs[i]
			continue
		}
		e, ok := fault.As(f.outs[i].Err)
		if !ok || !e.Retryable() {
			continue
		}
		if !f.failed[id] && homeSpecific(e.Reason) {
			here[id] = true
		}
		if !here[id] {
			f.failed[id] = true
			continue
		}
		if e.Reason == fault.OutcomeUnknown {
			f.doubtful[id] = true
		}
		retryHere = append(retryHere, i)
	}
	return retryHere
}

// homeSpecific reports whether a failure may be specific to the home: it is shutting down, its time
// for this piece is over, or it can't reach the store. Another node may succeed. For an overloaded
// home it is false, because writing elsewhere would not help.
func homeSpecific(reason fault.Reason) bool {
	switch reason {
	case fault.ShuttingDown, fault.DeadlinePassed, fault.OutcomeUnknown, fault.StoreUnavailable:
		return true
	default:
		return false
	}
}

// settleFailed sets the outcome of a draft to BATCH_ABORTED if an earlier draft of its channel
// failed retryably, and hands it back if an earlier one was. It reports whether it did.
func (f *forward) settleFailed(i int) bool {
	if out, ok := f.stale[f.drafts[i].ChannelID]; ok {
		f.outs[i] = out
		return true
	}
	if !f.failed[f.drafts[i].ChannelID] {
		return false
	}
	f.outs[i] = message.Outcome{Err: message.BatchAborted(nil)}
	return true
}

// appendHere appends drafts on this node; open holds their indexes. A draft that fails retryably
// and may have reached the home gets OUTCOME_UNKNOWN: the home may be suspended and append it when
// it resumes.
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
			unknown := message.OutcomeUnknown(e)
			unknown.RetryAfter = e.RetryAfter
			out.Err = unknown
		}
		f.outs[at[n]] = out
	}
}
