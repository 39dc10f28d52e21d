package parley

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// maxBatchItems and maxBatchBytes bound one request; the server takes 500 items and 2 MiB.
	maxBatchItems = 500
	maxBatchBytes = 2<<20 - 64<<10
	// batchAttempts is how much longer than another call one of a batch may take.
	batchAttempts = 3
)

// Result is what became of one message of a batch.
type Result struct {
	// Receipt is set if the message is stored.
	Receipt *Receipt
	// Err is set if it is not, or if that is not known. It is an *Error, or the error of the context that ended first.
	Err error
}

// SendBatch sends messages, of one channel or of many, and gives a result for each, in order. Messages of one channel
// are stored in the order given: those that failed and may pass are tried again, with the same ids, before any later one of
// their channel is stored. A message that is refused for good holds nothing up. There is no limit to the number: more
// than fit into one request go in several, one after another.
//
// The error is nil if every message was either stored or refused for good. Otherwise it says what ended the call: ctx,
// or a refusal of the call as a whole; the results then tell how far it came.
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
		// 8 is more than the tag and the length that precede an item.
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

// batch is a call on many items under way.
type batch struct {
	*link.Batch

	// pending are the items that are neither done nor refused for good, ascending. What a request sends is always its first
	// part, so that nothing overtakes.
	pending []int
	// failed is the last failure of each item.
	failed map[int]error
}

// sendAll sends part after part until nothing is pending.
func (c *Client) sendAll(ctx context.Context, work *link.Batch, items []int) error {
	b := &batch{Batch: work, pending: slices.Clone(items), failed: make(map[int]error)}
	var last error
	for failures := 0; len(b.pending) > 0; {
		before := len(b.pending)
		node, err := c.sendPart(ctx, b, b.part(), batchAttempts*c.limit(failures))
		if len(b.pending) < before {
			failures, last = 0, nil
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return b.giveUp(interrupted(ctx, orElse(last, err)))
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

// part gives the first pending items, as many as one request may hold.
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

// giveUp answers what is pending, with the item's own failure where there was one, and gives err.
func (b *batch) giveUp(err error) error {
	for _, i := range b.pending {
		b.Settled(i, orElse(b.failed[i], err))
	}
	return err
}

// sendPart makes one request and takes the settled items from the pending ones. Its error is the first failure that
// may pass, or that of the request as a whole; with the node that was asked.
func (c *Client) sendPart(ctx context.Context, b *batch, part []int, limit time.Duration) (*endpoint, error) {
	var answers []*parleyv1.ItemError
	node, err := c.call(ctx, limit, func(ctx context.Context, n *endpoint) (err error) {
		answers, err = b.Send(ctx, &n.Services, part)
		return err
	})
	if err == nil && len(answers) != len(part) {
		err = &Error{Code: connect.CodeInternal, Retryable: true, Message: "a batch was answered with too few or too many results"}
	}
	if err != nil {
		for _, i := range part {
			b.failed[i] = err
		}
		return node, err
	}
	err = c.settle(b, part, answers)
	if nodeFailed(err) {
		c.endpoints.fail(node)
	}
	return node, err
}

// settle takes the answers of a part, in order.
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
		b.failed[i] = e
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
