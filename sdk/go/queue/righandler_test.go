package queue_test

import (
	"context"
	"io"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// StreamingConsume implements the service.
func (g *rig) StreamingConsume(
	ctx context.Context, stream *connect.BidiStream[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse],
) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	c := g.open(ctx, first.GetStart(), stream.Send)
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer cancel() // the client has closed its half
		for {
			req, err := stream.Receive()
			if err != nil {
				return
			}
			if res := c.request(req); res != nil {
				c.results(res)
			}
		}
	}()
	err = c.serve(ctx)
	go func() { <-received }()
	return err
}

// Consume implements the service.
func (g *rig) Consume(ctx context.Context, req *parleyv1.ConsumeRequest, out *connect.ServerStream[parleyv1.ConsumeResponse]) error {
	return g.open(ctx, req, func(f *parleyv1.StreamingConsumeResponse) error { return out.Send(f.GetConsume()) }).serve(ctx)
}

func (g *rig) open(ctx context.Context, start *parleyv1.ConsumeRequest, send func(*parleyv1.StreamingConsumeResponse) error) *conn {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	node, _ := ctx.Value(nodeKey{}).(string)
	c := &conn{
		rig: g, node: node, token: info.RequestHeader().Get("Authorization"), start: start, send: send, opened: time.Now(),
		over: make(chan error), gone: make(chan struct{}),
	}
	g.mu.Lock()
	g.all = append(g.all, c)
	g.mu.Unlock()
	g.conns <- c
	return c
}

// serve sends heartbeats until the test or the client ends the stream.
func (c *conn) serve(ctx context.Context) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.send = func(*parleyv1.StreamingConsumeResponse) error { return io.EOF }
		close(c.gone)
	}()
	ticker := time.NewTicker(grace / 4)
	defer ticker.Stop()
	for {
		select {
		case err := <-c.over:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			c.mu.Lock()
			quiet := c.silent || !c.isLive
			c.mu.Unlock()
			if !quiet {
				c.heartbeat(0)
			}
		}
	}
}

// request records a request and returns its answer, or nil if there is none.
func (c *conn) request(req *parleyv1.StreamingConsumeRequest) *parleyv1.RequestResults {
	c.mu.Lock()
	c.requests = append(c.requests, req)
	c.mu.Unlock()
	res, ok := (*parleyv1.RequestResults)(nil), true
	c.rig.scripting.Lock()
	if c.rig.script != nil {
		res, ok = c.rig.script(c, req)
	}
	c.rig.scripting.Unlock()
	if !ok || res == nil && req.GetExtend().GetBegun() {
		return nil
	}
	if res == nil {
		n := len(req.GetAck().GetTokens()) + len(req.GetNack().GetItems()) + len(req.GetExtend().GetDeliveries().GetTokens())
		res = &parleyv1.RequestResults{}
		for range n {
			res.Results = append(res.Results, &parleyv1.SettleResult{})
		}
	}
	res.RequestId = req.GetRequestId()
	return res
}

// call records a unary call at the latest stream. If the script does not answer, it waits until the
// client gives up.
func (g *rig) call(ctx context.Context, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, error) {
	g.mu.Lock()
	c := g.all[len(g.all)-1]
	g.called = append(g.called, req)
	g.mu.Unlock()
	res := c.request(req)
	<-time.After(g.slow)
	if res == nil && !req.GetExtend().GetBegun() {
		<-ctx.Done()
		return nil, connect.NewError(connect.CodeUnavailable, io.ErrUnexpectedEOF)
	}
	return res, nil
}

// Ack implements the service.
func (g *rig) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	res, err := g.call(ctx, &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: req}})
	return &parleyv1.AckResponse{Results: res.GetResults()}, err
}

// Nack implements the service.
func (g *rig) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	res, err := g.call(ctx, &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: req}})
	return &parleyv1.NackResponse{Results: res.GetResults()}, err
}

// Extend implements the service.
func (g *rig) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	res, err := g.call(ctx, &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: req}})
	return &parleyv1.ExtendResponse{Results: res.GetResults()}, err
}

// Leave implements the service.
func (g *rig) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	_, err := g.call(ctx, &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: req}})
	return &parleyv1.LeaveResponse{}, err
}
