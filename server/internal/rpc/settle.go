package rpc

import (
	"context"
	"log/slog"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
)

// Ack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	results, err := inCall(ctx, req, s.ack)
	if err != nil {
		return nil, err
	}
	return &parleyv1.AckResponse{Results: results}, nil
}

// Nack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	results, err := inCall(ctx, req, s.nack)
	if err != nil {
		return nil, err
	}
	return &parleyv1.NackResponse{Results: results}, nil
}

// Extend implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	results, err := inCall(ctx, req, s.extend)
	if err != nil {
		return nil, err
	}
	return &parleyv1.ExtendResponse{Results: results}, nil
}

// UpdateSession implements parleyv1connect.QueueServiceHandler.
func (s *queueService) UpdateSession(
	ctx context.Context, req *parleyv1.UpdateSessionRequest,
) (*parleyv1.UpdateSessionResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	u := updateOf(req)
	u.Renewal = &consume.Renewal{Key: p.Key, IssuedAt: p.IssuedAt, Expires: p.Expires}
	expires, err := s.deps.Consumers.Update(ctx, p.Subject, req.GetSessionId(), u)
	if err != nil {
		return nil, err
	}
	out := &parleyv1.UpdateSessionResponse{}
	if !expires.IsZero() {
		out.ExpireTime = timestamppb.New(expires)
	}
	return out, nil
}

func updateOf(req *parleyv1.UpdateSessionRequest) consume.Update {
	return consume.Update{
		Concurrency: int(req.GetConcurrency()), MaxInFlight: int(req.GetMaxInFlight()), MaxBytes: req.GetMaxInFlightBytes(),
	}
}

// Leave implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.deps.Consumers.Leave(ctx, p.Subject, req.GetSessionId()); err != nil {
		return nil, err
	}
	return &parleyv1.LeaveResponse{}, nil
}

// sessionCall is a call that settles or extends deliveries of a session. prefix is the path of the
// request's fields, with a dot at its end.
type sessionCall[R any] func(
	ctx context.Context, p *ident.Principal, session, prefix string, req R,
) ([]*parleyv1.SettleResult, error)

// inCall makes a unary call.
func inCall[R interface{ GetSessionId() string }](ctx context.Context, req R, do sessionCall[R]) ([]*parleyv1.SettleResult, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	return do(ctx, p, req.GetSessionId(), "", req)
}

func (s *queueService) ack(
	ctx context.Context, p *ident.Principal, session, prefix string, req *parleyv1.AckRequest,
) ([]*parleyv1.SettleResult, error) {
	c := s.newSettlements(ctx, p, len(req.GetTokens()), tokenAt(prefix+"tokens"))
	for i, token := range req.GetTokens() {
		if err := c.addAck(i, token); err != nil {
			return nil, err
		}
	}
	return s.settle(ctx, session, c)
}

func (s *queueService) nack(
	ctx context.Context, p *ident.Principal, session, prefix string, req *parleyv1.NackRequest,
) ([]*parleyv1.SettleResult, error) {
	c := s.newSettlements(ctx, p, len(req.GetItems()), func(i int) func(string) string { return itemPath(prefix+"items", i) })
	for i, item := range req.GetItems() {
		if err := c.addNack(i, item); err != nil {
			return nil, err
		}
	}
	return s.settle(ctx, session, c)
}

// settle ends deliveries of a session. The caller charges a call that fails as a whole.
func (s *queueService) settle(ctx context.Context, session string, c *settlements) ([]*parleyv1.SettleResult, error) {
	var errs []error
	if len(c.items) > 0 {
		var err error
		if errs, err = s.deps.Consumers.Settle(ctx, c.topics.principal.Subject, session, c.items); err != nil {
			return nil, err
		}
	}
	return s.answered(ctx, c, errs), nil
}

// answered completes the results of a call, and charges the items that failed to Deps.Settles.
func (s *queueService) answered(ctx context.Context, c *settlements, errs []error) []*parleyv1.SettleResult {
	failed := c.fill(s.loggerOf(ctx), errs)
	s.deps.Settles.Charge(c.topics.principal.Subject, failed)
	return c.results
}

func (s *queueService) extend(
	ctx context.Context, p *ident.Principal, session, prefix string, req *parleyv1.ExtendRequest,
) ([]*parleyv1.SettleResult, error) {
	x := consume.Extension{All: req.GetAll() != nil, AckTimeout: millis(req.GetAckTimeout()), Begun: req.GetBegun()}
	if x.All && x.Begun {
		return nil, fault.Invalid(prefix+"begun", 0, "%sbegun: must not be set with all", prefix)
	}
	tokens := req.GetDeliveries().GetTokens()
	c := s.newSettlements(ctx, p, len(tokens), tokenAt(prefix+"deliveries.tokens"))
	for i, text := range tokens {
		token, ok, err := c.token(i, text)
		if err != nil {
			return nil, err
		}
		if ok {
			x.Tokens, c.at = append(x.Tokens, token), append(c.at, i)
		}
	}
	var errs []error
	if x.All || len(x.Tokens) > 0 {
		var err error
		if errs, err = s.deps.Consumers.Extend(ctx, p.Subject, session, x); err != nil {
			return nil, err
		}
	}
	return s.answered(ctx, c, errs), nil
}

// itemLogger converts the error of an item, and logs an internal one. See loggedItemError.
type itemLogger struct {
	ctx context.Context //nolint:containedctx // of the call that it lives in
	log *slog.Logger
}

func (s *queueService) loggerOf(ctx context.Context) itemLogger {
	return itemLogger{ctx, s.deps.Telemetry.Logger}
}

// consumable checks that the token of a caller allows to consume topics. It remembers the last one:
// most deliveries of a call are of the same topic.
type consumable struct {
	principal *ident.Principal
	last      string
}

func (c *consumable) check(topic string) error {
	if topic == c.last {
		return nil
	}
	if !c.principal.CanQueue(ident.Consume, topic) {
		return onAnyTopic().refusal()
	}
	c.last = topic
	return nil
}

// settlements collects what one call says about deliveries, and the results. Items that are not
// valid have an error as their result and are not in items.
type settlements struct {
	items   []consume.Settlement
	results []*parleyv1.SettleResult

	// at holds, for each valid item in order, its index in the request.
	at     []int
	topics consumable
	log    itemLogger
	// path returns, for item i, the function that converts a field of the item to its path in the
	// request.
	path      func(i int) func(field string) string
	validator protovalidate.Validator
}

func (s *queueService) newSettlements(
	ctx context.Context, p *ident.Principal, n int, path func(i int) func(field string) string,
) *settlements {
	return &settlements{
		items: make([]consume.Settlement, 0, n), results: make([]*parleyv1.SettleResult, n), at: make([]int, 0, n),
		topics: consumable{principal: p}, log: s.loggerOf(ctx), path: path, validator: s.validator,
	}
}

// tokenAt returns the settlements.path of a list of tokens, whose paths have the form field[i].
func tokenAt(field string) func(i int) func(string) string {
	return func(i int) func(string) string {
		return func(string) string { return indexed(field, i) }
	}
}

// refuse sets an error as the result of item i.
func (c *settlements) refuse(i int, err error) {
	c.results[i] = &parleyv1.SettleResult{Error: loggedItemError(c.log.ctx, c.log.log, c.path(i), err)}
}

// token parses the token of item i. ok is false if it is malformed; its result then says so. The
// error is of the whole call: the caller may not consume the topic.
func (c *settlements) token(i int, text string) (token consume.Token, ok bool, err error) {
	if token, ok = consume.ParseToken(text); !ok {
		f := fault.New(fault.InvalidArgument, fault.DeliveryTokenInvalid, "the token is not one of a delivery")
		f.Field = "token"
		c.refuse(i, f)
		return token, false, nil
	}
	return token, true, c.topics.check(token.Topic)
}

// addAck adds the acknowledgement that is item i.
func (c *settlements) addAck(i int, text string) error {
	token, ok, err := c.token(i, text)
	if ok && err == nil {
		c.items, c.at = append(c.items, consume.Settlement{Token: token, Verdict: dispatch.Ack}), append(c.at, i)
	}
	return err
}

// addNack adds the NackItem that is item i.
func (c *settlements) addNack(i int, item *parleyv1.NackItem) error {
	if err := checkNackItem(c.validator, item); err != nil {
		c.refuse(i, err)
		return nil
	}
	token, ok, err := c.token(i, item.GetToken())
	if ok && err == nil {
		c.items, c.at = append(c.items, settlementOf(token, item)), append(c.at, i)
	}
	return err
}

// fill sets the results of the valid items from their errors, which may be fewer, and returns how
// many items of the request failed.
func (c *settlements) fill(log itemLogger, errs []error) (failed int) {
	c.log = log
	failed = len(c.results) - len(c.at)
	done := make([]parleyv1.SettleResult, len(c.at)) // one allocation for all
	for j, i := range c.at {
		if j < len(errs) && errs[j] != nil {
			c.refuse(i, errs[j])
			failed++
			continue
		}
		c.results[i] = &done[j]
	}
	return failed
}

func checkNackItem(validator protovalidate.Validator, m *parleyv1.NackItem) error {
	if err := checkItem(validator, m); err != nil {
		return err
	}
	if m.GetRelease() != nil && (m.GetReason() != "" || m.GetCode() != "") {
		return fault.Invalid("release", 0, "release: must not have a reason or a code")
	}
	return nil
}

func settlementOf(token consume.Token, m *parleyv1.NackItem) consume.Settlement {
	out := consume.Settlement{Token: token, Reason: m.GetReason(), Code: m.GetCode()}
	switch {
	case m.GetDeadLetter() != nil:
		out.Verdict = dispatch.DeadLetter
	case m.GetRelease() != nil:
		out.Verdict = dispatch.Release
	default:
		out.Verdict = dispatch.Retry
		if delay := m.GetRetry().GetDelay(); delay != nil {
			// 0 would mean the group's backoff.
			out.Delay = max(millis(delay), time.Millisecond)
		}
	}
	return out
}
