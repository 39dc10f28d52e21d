package parley

import (
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// maxBatchItems and maxBatchBytes bound one SendMessages request. The server accepts up to 500
	// items and 2 MiB.
	maxBatchItems = 500
	maxBatchBytes = 2<<20 - 64<<10
	// batchAttempts is the factor by which an attempt of a batch may take longer than that of
	// another call.
	batchAttempts = 3
)

// Result is the result of one message of a batch.
type Result struct {
	// Receipt is set if the message is stored.
	Receipt *Receipt
	// Err is set if the message is not stored, or if the outcome is unknown. It is an *Error, or
	// the error of the context that ended.
	Err error
}

// SendBatch sends messages to one or many channels and returns one result per message, in order.
// The messages of one channel are stored in the given order: a message with a retryable failure is
// sent again, with the same id, before any later message of its channel is stored. A permanently
// refused message does not delay the other messages. The number of messages is not limited: if they
// do not fit into one request, SendBatch makes several, one after another.
//
// The error is nil if every message was either stored or permanently refused. Otherwise it is the
// reason for which the call ended: ctx, a refusal of the whole call, or the call's deadline, which
// starts again whenever a request made progress (see WithCallTimeout). The results are valid in any
// case.
func (c *Client) SendBatch(ctx context.Context, messages []Outgoing) ([]Result, error) {
	results, requests := make([]Result, len(messages)), make([]*parleyv1.SendMessageRequest, len(messages))
	var pending []int
	for i := range messages {
		req, err := messages[i].request()
		if err != nil {
			results[i].Err = err
			continue
		}
		requests[i] = req
		pending = append(pending, i)
	}
	err := c.sendAll(ctx, &link.Batch{
		Name: "SendMessages", MaxItems: maxBatchItems, MaxBytes: maxBatchBytes,
		// The 8 bytes cover the tag and the length that precede each item in the encoded request.
		Size: func(i int) int { return proto.Size(requests[i]) + 8 },
		Send: func(ctx context.Context, s *link.Services, items []int) ([]*parleyv1.ItemError, error) {
			req := &parleyv1.SendMessagesRequest{Messages: make([]*parleyv1.SendMessageRequest, 0, len(items))}
			for _, i := range items {
				req.Messages = append(req.Messages, requests[i])
			}
			res, err := s.Message.SendMessages(ctx, req)
			if err != nil {
				return nil, err
			}
			answers := make([]*parleyv1.ItemError, len(res.GetResults()))
			for n, item := range res.GetResults() {
				sent := item.GetSent()
				switch {
				case sent == nil && item.GetError() == nil:
					answers[n] = &parleyv1.ItemError{}
				case sent == nil:
					answers[n] = item.GetError()
				case n < len(items):
					results[items[n]].Receipt = c.receipt(requests[items[n]].GetChannelId(), sent)
				}
			}
			return answers, nil
		},
		Settled: func(i int, err error) { results[i].Err = err },
	}, pending)
	return results, err
}

// batch is the state of a call on many items.
type batch struct {
	*link.Batch

	// pending are the items that are neither done nor permanently refused, ascending. A request
	// always sends the first of them, so that no item overtakes another.
	pending []int
	// failed maps the index of an item to its last failure (see fail).
	failed map[int]error
}

// fail records a failure that left an item pending: its own retryable one, or that of the whole
// request.
func (b *batch) fail(i int, err error) {
	b.failed[i] = err
	if b.Failed != nil {
		b.Failed(i, err)
	}
}

// sendAll sends the items in parts, one after another, until all are settled or the call fails.
// Each part that settles an item restarts the call's deadline.
func (c *Client) sendAll(life context.Context, work *link.Batch, items []int) error {
	b := &batch{Batch: work, pending: slices.Clone(items), failed: make(map[int]error)}
	bounded := c.deadline
	if work.Unbounded {
		bounded = func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	}
	ctx, cancel := bounded(life)
	defer func() { cancel() }()
	var last error
	for failures := 0; len(b.pending) > 0; {
		before := len(b.pending)
		node, err := c.sendPart(ctx, b, b.part(), batchAttempts*c.limit(failures))
		if len(b.pending) < before {
			failures, last = 0, nil
			cancel()
			ctx, cancel = bounded(life) //nolint:fatcontext // each comes from life
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return b.giveUp(interrupted(ctx, failureBefore(ctx, last, err)))
		case !c.worthRetrying(err):
			return b.giveUp(err)
		}
		last = err
		if err := c.pause(ctx, b.Name, failures, node, err); err != nil {
			return b.giveUp(err)
		}
		failures++
	}
	return nil
}

// part returns the first pending items, as many as fit into one request.
func (b *batch) part() []int {
	size := 0
	for n, i := range b.pending {
		size += b.Size(i)
		if n == b.MaxItems || (n > 0 && size > b.MaxBytes) {
			return b.pending[:n]
		}
	}
	return b.pending
}

// giveUp settles the pending items, each with its own last failure or, if it has none, with err. It
// returns err.
func (b *batch) giveUp(err error) error {
	for _, i := range b.pending {
		b.Settled(i, orElse(b.failed[i], err))
	}
	return err
}

// sendPart makes one request and removes the settled items from the pending ones. It returns the
// node that was called. Its error is the first retryable failure of an item, or the failure of the
// whole request.
func (c *Client) sendPart(ctx context.Context, b *batch, part []int, limit time.Duration) (*endpoint, error) {
	var answers []*parleyv1.ItemError
	node, err := c.try(ctx, limit, func(ctx context.Context, n *endpoint) (err error) {
		answers, err = b.Send(ctx, &n.Services, part)
		return err
	})
	if err == nil && len(answers) != len(part) {
		err = &Error{Code: connect.CodeInternal, Retryable: true, Message: "the number of results differs from the number of batch items"}
	}
	if err != nil {
		// If the end of ctx caused the error, the items keep their previous failure.
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			for _, i := range part {
				b.fail(i, err)
			}
		}
		return node, err
	}
	err = c.settle(b, part, answers)
	if nodeFailed(err) {
		c.endpoints.fail(node)
	}
	return node, err
}

// settle applies the answers of a part, in order. It returns the first retryable failure of an
// item, with the longest RetryAfter of all.
func (c *Client) settle(b *batch, part []int, answers []*parleyv1.ItemError) error {
	settled := make(map[int]bool, len(part))
	var failure *Error
	for n, i := range part {
		if answers[n] == nil {
			b.Settled(i, nil)
			settled[i] = true
			continue
		}
		e := itemError(answers[n])
		if !c.worthRetrying(e) {
			b.Settled(i, e)
			settled[i] = true
			continue
		}
		b.fail(i, e)
		if failure == nil {
			failure = e
		}
		failure.RetryAfter = max(failure.RetryAfter, e.RetryAfter)
	}
	b.pending = slices.DeleteFunc(b.pending, func(i int) bool { return settled[i] })
	if failure != nil {
		return failure
	}
	return nil
}
