package consume

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// routeTime bounds how long a call looks for the holder of a partition. A takeover takes as long.
	routeTime = 6 * time.Second
	// releaseTime bounds how long a holder is looked for to give back what a consumer never got. Nobody
	// waits for that, and without it the delivery lasts until its ack timeout.
	releaseTime = 10 * time.Minute
	// routeAgain is the wait before a call asks the next holder. It grows up to routeLongest.
	routeAgain   = 50 * time.Millisecond
	routeLongest = 250 * time.Millisecond
	// resumeWait bounds how long a resumed stream waits for the results of unanswered verdicts.
	resumeWait = time.Second
)

// errMoved: the lease is not here, or was lost before the result was durable. Another holder may know
// more.
var errMoved = fault.New(fault.Unavailable, fault.StoreUnavailable, "the partition has no dispatcher at present; repeat the call")

// Settlement ends a delivery.
type Settlement struct {
	Token   Token
	Verdict dispatch.Verdict
	// Delay is the time until the next attempt, for Retry; 0 means the group's backoff.
	Delay        time.Duration
	Reason, Code string
}

// call collects the results of one call's items. It belongs to the engine's goroutine until
// finished is closed.
type call struct {
	results  []error
	left     int
	finished chan struct{}
}

func newCall(n int) *call {
	c := &call{results: make([]error, n), left: n, finished: make(chan struct{})}
	if n == 0 {
		close(c.finished)
	}
	return c
}

// done sets the result of an item. Each item has one.
func (c *call) done(i int, err error) {
	c.results[i] = err
	if c.left--; c.left == 0 {
		close(c.finished)
	}
}

// wait waits for all results. If ctx or the engine ends before, the outcome of all is unknown.
func (c *call) wait(ctx context.Context, e *engine) ([]error, error) {
	select {
	case <-c.finished:
		return c.results, nil
	case <-e.run.Context().Done():
		return nil, outcomeUnknown(lifecycle.ErrStopped)
	case <-ctx.Done():
		return nil, outcomeUnknown(ctx.Err())
	}
}

// within waits for the results for a time. Those that are missing then are STORE_UNAVAILABLE.
func (c *call) within(ctx context.Context, most time.Duration) []error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-c.finished:
		return c.results
	case <-ctx.Done():
		missing := make([]error, len(c.results))
		for i := range missing {
			missing[i] = errMoved
		}
		return missing
	}
}

func outcomeUnknown(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown, "the call may have been executed; repeat it")
}

// settleError returns what a caller is told.
func settleError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dispatch.ErrLost):
		return fault.New(fault.FailedPrecondition, fault.DeliveryLost, "the session no longer holds the delivery; nothing was changed")
	case errors.Is(err, dispatch.ErrGone):
		return fault.New(fault.FailedPrecondition, fault.DeliveryGone, "the message was settled before")
	case errors.Is(err, dispatch.ErrBegun):
		return fault.New(fault.FailedPrecondition, fault.MessageRunning, "a handler has begun the message; it was not cancelled")
	default:
		return errMoved
	}
}

// task is what a call does with its items.
type task interface {
	// local executes items of x at the holder of their partition. The results come with engine.answer,
	// now or later.
	local(now time.Time, h *holder, x *errand)
	// remote asks another node for the items. It is called without the engine's goroutine.
	remote(ctx context.Context, e *engine, node string, items []int) ([]error, error)
	// over is called with the final result of an item of x. It returns what the caller is told.
	over(e *engine, x *errand, i int, err error) error
}

// errand is the part of a call that concerns one partition. It goes to the holder, wherever that is,
// and to the next one if the lease moves.
type errand struct {
	call  *call
	task  task
	at    partition
	items []int
	// until is when its caller is told that there is no holder. Here: it must not be sent to another
	// node.
	until time.Time
	here  bool
	// failures counts how often it was routed anew.
	failures int
	// tried: an earlier holder may have executed it without an answer.
	tried bool
}

// errands divides the items of a call by their partitions.
func errands(now time.Time, c *call, t task, n int, at func(i int) partition) []*errand {
	byPartition := map[partition]*errand{}
	var list []*errand
	for i := range n {
		p := at(i)
		x := byPartition[p]
		if x == nil {
			x = &errand{call: c, task: t, at: p, until: now.Add(routeTime)}
			byPartition[p] = x
			list = append(list, x)
		}
		x.items = append(x.items, i)
	}
	return list
}

// route has the holder of the partition execute an errand.
func (e *engine) route(now time.Time, x *errand) {
	h := e.holders[x.at]
	switch {
	case h != nil && h.phase == serving:
		x.task.local(now, h, x)
	case x.here:
		e.fail(x, errMoved)
	case h != nil:
		h.waiting = append(h.waiting, x)
	case !now.Before(x.until):
		e.fail(x, errMoved)
	default:
		t := e.topic(x.at.topic)
		t.needed = now
		if t.settings != nil && x.at.number >= t.settings.Partitions {
			e.fail(x, settleError(dispatch.ErrLost))
			return
		}
		if node := t.holder(x.at.number); node != "" {
			e.send(x, node)
			return
		}
		t.waiting = append(t.waiting, x)
		t.reviewSoon(now)
	}
}

// send asks another node to execute an errand.
func (e *engine) send(x *errand, node string) {
	e.background(func(ctx context.Context) {
		results, err := x.task.remote(ctx, e, node, x.items)
		if err == nil && len(results) != len(x.items) {
			err = outcomeUnknown(nil)
		}
		e.post(func(now time.Time) {
			moved := false
			for k, i := range x.items {
				result := err
				if err == nil {
					result = results[k]
				}
				if !unsettled(result) {
					e.answer(x, i, result)
					continue
				}
				moved = true
				e.again(now, x, result, fault.Is(result, fault.OutcomeUnknown), i)
			}
			if t := e.topics[x.at.topic]; moved && t != nil {
				t.doubtHolder(now, x.at.number, node)
			}
		})
	})
}

// unsettled reports whether a result says that another node, or the same one later, must be asked.
func unsettled(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return err != nil && (!ok || f.Kind == fault.Unavailable)
}

// again routes items of an errand anew, a little later. Tried: they may have been executed.
func (e *engine) again(now time.Time, x *errand, err error, tried bool, items ...int) {
	next := *x
	next.items, next.tried, next.failures = items, x.tried || tried, x.failures+1
	wait := min(routeAgain<<min(x.failures, 8), routeLongest)
	if x.here || !now.Add(wait).Before(x.until) {
		e.fail(&next, err)
		return
	}
	e.postAfter(wait, func(now time.Time) { e.route(now, &next) })
}

// fail ends an errand with an error for each item.
func (e *engine) fail(x *errand, err error) {
	for _, i := range x.items {
		e.answer(x, i, err)
	}
}

// answer sets the final result of an item.
func (e *engine) answer(x *errand, i int, err error) {
	x.call.done(i, x.task.over(e, x, i, err))
}

// pending is an item that waits for a commit.
type pending struct {
	x *errand
	i int
}

// settleTask settles deliveries of a session. From is the node that the call came to.
type settleTask struct {
	session, from string
	items         []Settlement
}

func (t *settleTask) local(now time.Time, h *holder, x *errand) {
	for _, i := range x.items {
		it := &t.items[i]
		p := &pending{x, i}
		h.calls[p] = true
		h.d.Settle(now, dispatch.Settlement{
			ID: it.Token.ID, Gen: it.Token.Gen, Session: t.session, Verdict: it.Verdict, Delay: it.Delay,
			Code: it.Code, Reason: it.Reason, Token: p,
		})
	}
}

func (t *settleTask) remote(ctx context.Context, e *engine, node string, items []int) ([]error, error) {
	r := SettleRequest{Node: e.svc.cfg.Node, Group: e.group, Session: t.session}
	for _, i := range items {
		r.Items = append(r.Items, t.items[i])
	}
	return e.svc.cfg.Peers.Settle(ctx, node, r)
}

// over: until a settlement is durable the session has the delivery, because the next holder of the
// lease must be told of it. An ack that an earlier holder may have taken is done if the message is.
func (t *settleTask) over(e *engine, x *errand, i int, err error) error {
	if x.tried && t.items[i].Verdict == dispatch.Ack && fault.Is(err, fault.DeliveryGone) {
		err = nil
	}
	if !unsettled(err) {
		e.dropped(t.session, t.from, t.items[i].Token)
	}
	return err
}

// extendTask restarts the ack timeouts of deliveries of a session.
type extendTask struct {
	session string
	tokens  []Token
	timeout time.Duration
	begun   bool
}

func (t *extendTask) local(now time.Time, h *holder, x *errand) {
	for _, i := range x.items {
		m := dispatch.Mark{ID: t.tokens[i].ID, Gen: t.tokens[i].Gen}
		ok := h.d.Extend(now, t.session, m, t.timeout)
		if ok && t.begun {
			ok = h.d.Begun(now, t.session, m)
		}
		var err error
		if !ok {
			err = settleError(dispatch.ErrLost)
		}
		h.e.answer(x, i, err)
	}
}

func (t *extendTask) remote(ctx context.Context, e *engine, node string, items []int) ([]error, error) {
	r := ExtendRequest{Node: e.svc.cfg.Node, Group: e.group, Session: t.session, AckTimeout: t.timeout, Begun: t.begun}
	for _, i := range items {
		r.Tokens = append(r.Tokens, t.tokens[i])
	}
	return e.svc.cfg.Peers.Extend(ctx, node, r)
}

func (t *extendTask) over(e *engine, _ *errand, i int, err error) error {
	if s := e.sessions[t.session]; s != nil && t.begun && err == nil {
		if held := s.held[t.tokens[i]]; held != nil && !held.begun {
			held.begun, held.since = true, time.Now()
		}
	}
	return err
}

// cancelTask cancels messages that no handler has begun.
type cancelTask struct {
	topic     string
	partition int
	items     []Cancellation
}

func (t *cancelTask) local(now time.Time, h *holder, x *errand) {
	for _, i := range x.items {
		p := &pending{x, i}
		h.calls[p] = true
		it := &t.items[i]
		h.d.Cancel(now, dispatch.Cancellation{ID: it.ID, Key: it.Key, UniqueKey: it.UniqueKey, UnlessBegun: true, Token: p})
	}
}

func (t *cancelTask) remote(ctx context.Context, e *engine, node string, items []int) ([]error, error) {
	r := CancelRequest{Group: e.group, Topic: t.topic, Partition: t.partition}
	for _, i := range items {
		r.Items = append(r.Items, t.items[i])
	}
	return e.svc.cfg.Peers.Cancel(ctx, node, r)
}

func (t *cancelTask) over(_ *engine, _ *errand, _ int, err error) error { return err }

// errNotRetrying is the result for a message that does not wait for a retry.
var errNotRetrying = fault.New(fault.FailedPrecondition, fault.MessageNotFound, "the message does not wait for a retry")

// retryTask makes retries due now.
type retryTask struct {
	topic     string
	partition int
	ids       []qlog.ID
}

func (t *retryTask) local(now time.Time, h *holder, x *errand) {
	for _, i := range x.items {
		p := &pending{x, i}
		h.calls[p] = true
		h.d.Retry(now, dispatch.RetryNow{ID: t.ids[i], Token: p})
	}
}

func (t *retryTask) remote(ctx context.Context, e *engine, node string, items []int) ([]error, error) {
	r := RetryRequest{Group: e.group, Topic: t.topic, Partition: t.partition}
	for _, i := range items {
		r.IDs = append(r.IDs, t.ids[i])
	}
	n, err := e.svc.cfg.Peers.Retry(ctx, node, r)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(items))
	for i := n; i < len(results); i++ {
		results[i] = errNotRetrying // which of them does not matter: they are counted
	}
	return results, nil
}

func (t *retryTask) over(_ *engine, _ *errand, _ int, err error) error { return err }
