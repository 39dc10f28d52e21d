package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue"
)

// QueueCalls makes calls about live consumer streams, wherever they are.
type QueueCalls interface {
	// Do gives one error for each item, nil where it is done, or one for the whole.
	Do(ctx context.Context, c queue.Call) ([]error, error)
}

// ofSession is a request about a consumer stream.
type ofSession interface {
	GetTopic() string
	GetGroup() string
	GetStreamId() string
}

// Ack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	c, err := callAbout(ctx, req, queue.AckCall)
	if err != nil {
		return nil, err
	}
	results, err := s.settleTokens(ctx, c, "tokens", req.GetTokens())
	if err != nil {
		return nil, err
	}
	return &parleyv1.AckResponse{Results: results}, nil
}

// Nack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	c, err := callAbout(ctx, req, queue.NackCall)
	if err != nil {
		return nil, err
	}
	results, err := s.settleItems(ctx, c, req.GetItems())
	if err != nil {
		return nil, err
	}
	return &parleyv1.NackResponse{Results: results}, nil
}

// Extend implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	c, err := callAbout(ctx, req, queue.ExtendCall)
	if err != nil {
		return nil, err
	}
	if c.AckTimeout, err = ackTimeoutOf(req.GetAckTimeout()); err != nil {
		return nil, err
	}
	results, err := s.settleTokens(ctx, c, "deliveries.tokens", req.GetDeliveries().GetTokens())
	if err != nil {
		return nil, err
	}
	return &parleyv1.ExtendResponse{Results: results}, nil
}

// GrantCredits implements parleyv1connect.QueueServiceHandler.
func (s *queueService) GrantCredits(
	ctx context.Context, req *parleyv1.GrantCreditsRequest,
) (*parleyv1.GrantCreditsResponse, error) {
	c, err := callAbout(ctx, req, queue.CreditsCall)
	if err != nil {
		return nil, err
	}
	c.TotalMessages, c.TotalBytes = req.GetTotalMessages(), req.GetTotalBytes()
	if _, err := s.deps.QueueCalls.Do(ctx, *c); err != nil {
		return nil, err
	}
	return &parleyv1.GrantCreditsResponse{}, nil
}

// Leave implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	c, err := callAbout(ctx, req, queue.LeaveCall)
	if err != nil {
		return nil, err
	}
	if _, err := s.deps.QueueCalls.Do(ctx, *c); err != nil {
		return nil, err
	}
	return &parleyv1.LeaveResponse{}, nil
}

func callAbout(ctx context.Context, r ofSession, kind queue.CallKind) (*queue.Call, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	return &queue.Call{
		Kind: kind, StreamID: r.GetStreamId(), Subject: p.Subject, Topic: r.GetTopic(), Group: r.GetGroup(),
	}, nil
}

// settlement is one call's items that are to be done together, and the results of all.
type settlement struct {
	call    *queue.Call
	at      []int // of the call's items, in the request
	results []*parleyv1.SettleResult
	path    func(i int) func(field string) string
}

func (f *settlement) take(i int, item queue.CallItem) {
	f.call.Items, f.at = append(f.call.Items, item), append(f.at, i)
}

func (s *queueService) refuse(ctx context.Context, f *settlement, i int, err error) {
	f.results[i] = &parleyv1.SettleResult{Error: loggedItemError(ctx, s.deps.Telemetry.Logger, f.path(i), err)}
}

// settleTokens makes a call about the deliveries of these tokens, which stand in a field of the request. Without any it is about
// all deliveries of the stream, which the schema lets no request ask for by leaving something out.
func (s *queueService) settleTokens(
	ctx context.Context, c *queue.Call, field string, tokens []string,
) ([]*parleyv1.SettleResult, error) {
	f := &settlement{
		call: c, results: make([]*parleyv1.SettleResult, len(tokens)),
		path: func(i int) func(string) string {
			return func(string) string { return fmt.Sprintf("%s[%d]", field, i) }
		},
	}
	for i, token := range tokens {
		if err := checkToken(token); err != nil {
			s.refuse(ctx, f, i, err)
			continue
		}
		f.take(i, queue.CallItem{Token: token})
	}
	return s.settle(ctx, f)
}

// settleItems makes a call that gives these deliveries back.
func (s *queueService) settleItems(ctx context.Context, c *queue.Call, items []*parleyv1.NackItem) ([]*parleyv1.SettleResult, error) {
	f := &settlement{
		call: c, results: make([]*parleyv1.SettleResult, len(items)),
		path: func(i int) func(string) string { return itemPath("items", i) },
	}
	for i, item := range items {
		if err := s.checkNack(item); err != nil {
			s.refuse(ctx, f, i, err)
			continue
		}
		f.take(i, nackedOf(item))
	}
	return s.settle(ctx, f)
}

// settle makes the call for the items that may pass. What fails costs as much as a call; what is settled was delivered
// before, which bounds it.
func (s *queueService) settle(ctx context.Context, f *settlement) ([]*parleyv1.SettleResult, error) {
	failed := len(f.results) - len(f.at)
	if len(f.at) > 0 || len(f.results) == 0 {
		errs, err := s.deps.QueueCalls.Do(ctx, *f.call)
		if err != nil {
			return nil, err
		}
		done := make([]parleyv1.SettleResult, len(f.at)) // in one piece, not one for each
		for j, i := range f.at {
			if j < len(errs) && errs[j] != nil {
				s.refuse(ctx, f, i, errs[j])
				failed++
				continue
			}
			f.results[i] = &done[j]
		}
	}
	s.deps.Limiter.Charge(f.call.Subject, failed-1)
	return f.results, nil
}

const maxTokenBytes = 512

// checkToken judges a token's form, as the schema does where a token stands in a message of its own.
func checkToken(token string) error {
	if !validToken(token) {
		return fault.Invalid("token", maxTokenBytes, "token: is not 1 to %d of A-Z a-z 0-9 _ -", maxTokenBytes)
	}
	return nil
}

// validToken is ^[A-Za-z0-9_-]{1,512}$, which as a regular expression takes a tenth of all that a message costs the server.
func validToken(token string) bool {
	for i := range len(token) {
		c := token[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return token != "" && len(token) <= maxTokenBytes
}

func (s *queueService) checkNack(m *parleyv1.NackItem) error {
	if err := checkItem(s.validator, m); err != nil {
		return err
	}
	if m.GetRelease() != nil && (m.GetReason() != "" || m.GetCode() != "") {
		return fault.Invalid("release", 0, "release: must not have a reason or a code")
	}
	return nil
}

func nackedOf(m *parleyv1.NackItem) queue.CallItem {
	it := queue.CallItem{
		Token: m.GetToken(), Reason: m.GetReason(), Code: m.GetCode(),
		DeadLetter: m.GetDeadLetter() != nil, Release: m.GetRelease() != nil,
	}
	if delay := m.GetRetry().GetDelay(); delay != nil {
		d := millis(delay)
		it.Delay = &d
	}
	return it
}

// ackTimeouts is the schema's rule for an Extend's time.
var ackTimeouts = rulesOf((&parleyv1.ExtendRequest{}).ProtoReflect().Descriptor(), "ack_timeout").GetDuration()

// ackTimeoutOf reads a time that the interceptors have not judged; 0 if it is unset.
func ackTimeoutOf(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	least, most := ackTimeouts.GetGte().AsDuration(), ackTimeouts.GetLte().AsDuration()
	if out := millis(d); d.IsValid() && out >= least && out <= most {
		return out, nil
	}
	limit := least
	if millis(d) > limit {
		limit = most
	}
	return 0, fault.Invalid("ack_timeout", int64(limit/time.Second), "ack_timeout: is not %v to %v", least, most)
}
