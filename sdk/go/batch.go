package parley

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
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
	b := batch{results: make([]Result, len(messages)), requests: make([]*parleyv1.SendMessageRequest, len(messages))}
	for i := range messages {
		req, err := messages[i].request()
		if err != nil {
			b.results[i].Err = err
			continue
		}
		b.requests[i] = req
		b.pending = append(b.pending, i)
	}
	return b.results, c.sendAll(ctx, &b)
}

// sendAll sends part after part until nothing is pending.
func (c *Client) sendAll(ctx context.Context, b *batch) error {
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
		if err := c.pause(ctx, "SendMessages", failures, node, err); err != nil {
			return b.giveUp(err)
		}
		failures++
	}
	return nil
}

// batch is a SendBatch under way.
type batch struct {
	requests []*parleyv1.SendMessageRequest
	results  []Result
	// pending are the indices of what is neither stored nor refused for good, ascending. What a request sends is always
	// its first part, so that nothing overtakes.
	pending []int
}

// part gives the first pending messages, as many as one request may hold.
func (b *batch) part() []int {
	size := 0
	for n, i := range b.pending {
		// 8 is more than the tag and the length that precede an item.
		size += proto.Size(b.requests[i]) + 8
		if n == maxBatchItems || (n > 0 && size > maxBatchBytes) {
			return b.pending[:n]
		}
	}
	return b.pending
}

// giveUp answers what is pending and has no answer yet, and gives err.
func (b *batch) giveUp(err error) error {
	for _, i := range b.pending {
		if b.results[i].Err == nil {
			b.results[i].Err = err
		}
	}
	return err
}

// sendPart makes one request and takes the settled messages from the pending ones. Its error is the first failure that
// may pass, or that of the request as a whole; with the node that was asked.
func (c *Client) sendPart(ctx context.Context, b *batch, part []int, limit time.Duration) (*endpoint, error) {
	req := &parleyv1.SendMessagesRequest{Messages: make([]*parleyv1.SendMessageRequest, 0, len(part))}
	for _, i := range part {
		req.Messages = append(req.Messages, b.requests[i])
	}
	var res *parleyv1.SendMessagesResponse
	node, err := c.call(ctx, limit, func(ctx context.Context, rpc parleyv1connect.MessageServiceClient) (err error) {
		res, err = rpc.SendMessages(ctx, req)
		return err
	})
	if err == nil && len(res.GetResults()) != len(part) {
		err = &Error{Code: connect.CodeInternal, Retryable: true, Message: "a batch was answered with too few or too many results"}
	}
	if err != nil {
		for _, i := range part {
			b.results[i].Err = err
		}
		return node, err
	}
	err = c.settle(b, part, res.GetResults())
	if nodeFailed(err) {
		c.endpoints.fail(node)
	}
	return node, err
}

// settle takes the answers of a part, in order.
func (c *Client) settle(b *batch, part []int, answers []*parleyv1.SendResult) error {
	settled := make(map[int]bool, len(part))
	var failure *Error
	for n, i := range part {
		item := answers[n]
		if sent := item.GetSent(); sent != nil {
			b.results[i] = Result{Receipt: c.receipt(b.requests[i].GetChannelId(), sent)}
			settled[i] = true
			continue
		}
		e := itemError(item.GetError())
		b.results[i] = Result{Err: e}
		if !c.worthRetrying(e) {
			settled[i] = true
			continue
		}
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
