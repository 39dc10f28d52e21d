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

// ConsumerCalls settles and extends deliveries of live consumer streams, grants them credits and
// ends them, on whichever node they are. The methods of *queue.Hub with these names document them.
type ConsumerCalls interface {
	Ack(ctx context.Context, ref queue.StreamRef, tokens []string) ([]error, error)
	Nack(ctx context.Context, ref queue.StreamRef, items []queue.Nack) ([]error, error)
	Extend(ctx context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration) ([]error, error)
	Grant(ctx context.Context, ref queue.StreamRef, totalMessages, totalBytes int64) error
	Leave(ctx context.Context, ref queue.StreamRef) error
}

// streamRequest is a unary request that names a live consumer stream.
type streamRequest interface {
	GetTopic() string
	GetGroup() string
	GetStreamId() string
}

// Ack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	ref, err := streamRef(ctx, req)
	if err != nil {
		return nil, err
	}
	results, err := s.ack(ctx, ref, req.GetTokens())
	if err != nil {
		return nil, err
	}
	return &parleyv1.AckResponse{Results: results}, nil
}

// Nack implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	ref, err := streamRef(ctx, req)
	if err != nil {
		return nil, err
	}
	results, err := s.nack(ctx, ref, req.GetItems())
	if err != nil {
		return nil, err
	}
	return &parleyv1.NackResponse{Results: results}, nil
}

// Extend implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	ref, err := streamRef(ctx, req)
	if err != nil {
		return nil, err
	}
	timeout, err := ackTimeoutOf(req.GetAckTimeout())
	if err != nil {
		return nil, err
	}
	results, err := s.extend(ctx, ref, req.GetDeliveries().GetTokens(), timeout)
	if err != nil {
		return nil, err
	}
	return &parleyv1.ExtendResponse{Results: results}, nil
}

// GrantCredits implements parleyv1connect.QueueServiceHandler.
func (s *queueService) GrantCredits(
	ctx context.Context, req *parleyv1.GrantCreditsRequest,
) (*parleyv1.GrantCreditsResponse, error) {
	ref, err := streamRef(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.deps.ConsumerCalls.Grant(ctx, ref, req.GetTotalMessages(), req.GetTotalBytes()); err != nil {
		return nil, err
	}
	return &parleyv1.GrantCreditsResponse{}, nil
}

// Leave implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	ref, err := streamRef(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.deps.ConsumerCalls.Leave(ctx, ref); err != nil {
		return nil, err
	}
	return &parleyv1.LeaveResponse{}, nil
}

func streamRef(ctx context.Context, r streamRequest) (ref queue.StreamRef, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return ref, err
	}
	return queue.StreamRef{StreamID: r.GetStreamId(), Subject: p.Subject, Topic: r.GetTopic(), Group: r.GetGroup()}, nil
}

func (s *queueService) ack(ctx context.Context, ref queue.StreamRef, tokens []string) ([]*parleyv1.SettleResult, error) {
	r := newSettleResults(len(tokens), tokenPath("tokens"))
	valid := s.validTokens(ctx, r, tokens)
	return s.settle(ctx, r, ref.Subject, func() ([]error, error) { return s.deps.ConsumerCalls.Ack(ctx, ref, valid) })
}

func (s *queueService) nack(ctx context.Context, ref queue.StreamRef, items []*parleyv1.NackItem) ([]*parleyv1.SettleResult, error) {
	r := newSettleResults(len(items), func(i int) func(string) string { return itemPath("items", i) })
	valid := make([]queue.Nack, 0, len(items))
	for i, item := range items {
		if err := s.checkNack(item); err != nil {
			s.refuse(ctx, r, i, err)
			continue
		}
		valid, r.at = append(valid, nackOf(item)), append(r.at, i)
	}
	return s.settle(ctx, r, ref.Subject, func() ([]error, error) { return s.deps.ConsumerCalls.Nack(ctx, ref, valid) })
}

// extend restarts the ack timeout of the deliveries with these tokens. Without tokens it does so
// for all deliveries of the stream; the schema ensures that no request asks for that by omitting a
// field. timeout is 0 for the stream's own.
func (s *queueService) extend(
	ctx context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration,
) ([]*parleyv1.SettleResult, error) {
	r := newSettleResults(len(tokens), tokenPath("deliveries.tokens"))
	valid := s.validTokens(ctx, r, tokens)
	return s.settle(ctx, r, ref.Subject, func() ([]error, error) { return s.deps.ConsumerCalls.Extend(ctx, ref, valid, timeout) })
}

// settleResults collects the results of the tokens or Nacks of one request. It belongs to one
// goroutine.
type settleResults struct {
	results []*parleyv1.SettleResult
	// at holds, for each valid item in order, its index in the request.
	at []int
	// path returns, for item i, the function that converts a field of the item to its path in the
	// request.
	path func(i int) func(field string) string
}

func newSettleResults(items int, path func(i int) func(field string) string) *settleResults {
	return &settleResults{results: make([]*parleyv1.SettleResult, items), at: make([]int, 0, items), path: path}
}

// tokenPath returns the settleResults.path of a request's list of tokens. Its paths have the form
// field[i].
func tokenPath(field string) func(i int) func(string) string {
	return func(i int) func(string) string {
		return func(string) string { return fmt.Sprintf("%s[%d]", field, i) }
	}
}

func (s *queueService) refuse(ctx context.Context, r *settleResults, i int, err error) {
	r.results[i] = &parleyv1.SettleResult{Error: loggedItemError(ctx, s.deps.Telemetry.Logger, r.path(i), err)}
}

// validTokens returns the well-formed tokens, and sets an error as the result of each of the
// others.
func (s *queueService) validTokens(ctx context.Context, r *settleResults, tokens []string) []string {
	valid := make([]string, 0, len(tokens))
	for i, token := range tokens {
		if err := checkToken(token); err != nil {
			s.refuse(ctx, r, i, err)
			continue
		}
		valid, r.at = append(valid, token), append(r.at, i)
	}
	return valid
}

// settle runs call, which returns one error per valid item, and sets the items' results. It runs
// call unless all items of the request are invalid. It charges each failed item to Deps.Settles;
// the caller charges a request that fails as a whole.
func (s *queueService) settle(
	ctx context.Context, r *settleResults, subject string, call func() ([]error, error),
) ([]*parleyv1.SettleResult, error) {
	failed := len(r.results) - len(r.at)
	if len(r.at) > 0 || len(r.results) == 0 {
		errs, err := call()
		if err != nil {
			return nil, err
		}
		done := make([]parleyv1.SettleResult, len(r.at)) // one allocation for all
		for j, i := range r.at {
			if j < len(errs) && errs[j] != nil {
				s.refuse(ctx, r, i, errs[j])
				failed++
				continue
			}
			r.results[i] = &done[j]
		}
	}
	s.deps.Settles.Charge(subject, failed)
	return r.results, nil
}

const maxTokenBytes = 512

// checkToken returns a fault for a malformed delivery token. The rule is that of NackItem.token in
// the schema.
func checkToken(token string) error {
	if !validToken(token) {
		return fault.Invalid("token", maxTokenBytes, "token: must be 1 to %d characters of A-Z a-z 0-9 _ -", maxTokenBytes)
	}
	return nil
}

// validToken reports whether token matches ^[A-Za-z0-9_-]{1,512}$. It avoids a regular expression,
// which would take a tenth of the total cost of a message.
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

func nackOf(m *parleyv1.NackItem) queue.Nack {
	it := queue.Nack{
		Token: m.GetToken(), Reason: m.GetReason(), Code: m.GetCode(),
		DeadLetter: m.GetDeadLetter() != nil, Release: m.GetRelease() != nil,
	}
	if delay := m.GetRetry().GetDelay(); delay != nil {
		d := millis(delay)
		it.Delay = &d
	}
	return it
}

// ackTimeouts is the schema's rule for ExtendRequest.ack_timeout: the minimum and the maximum.
var ackTimeouts = rulesOf((&parleyv1.ExtendRequest{}).ProtoReflect().Descriptor(), "ack_timeout").GetDuration()

// ackTimeoutOf returns the ack timeout of an Extend, rounded up to milliseconds; 0 if d is nil. It
// returns a fault if the timeout breaks the schema's rule.
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
	return 0, fault.Invalid("ack_timeout", int64(limit/time.Second), "ack_timeout: must be %v to %v", least, most)
}
