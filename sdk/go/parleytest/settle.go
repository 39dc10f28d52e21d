package parleytest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

func errDeliveryLost() error {
	return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_LOST)
}

// settleResult returns the result of an item at the path item. The error of a token in a list of
// tokens names the item rather than a field of it.
func settleResult(err error, item string, isToken bool) *parleyv1.SettleResult {
	wire := prefixField(itemError(err), item)
	if isToken && wire.GetDetail().GetField() != "" {
		wire.Detail.Field = strings.TrimSuffix(wire.GetDetail().GetField(), ".token")
	}
	return &parleyv1.SettleResult{Error: wire}
}

// requestLocked executes a request of a StreamingConsume stream, and returns one result per
// delivery that the request names.
func (s *shared) requestLocked(
	ctx context.Context, one *session, req *parleyv1.StreamingConsumeRequest,
) ([]*parleyv1.SettleResult, error) {
	if err := checkForm(req); err != nil {
		return nil, err
	}
	own := func(id string) error {
		if id == "" || id == one.id {
			return nil
		}
		other, err := s.sessionOf(ctx, id)
		one = other
		return err
	}
	switch r := req.GetRequest().(type) {
	case *parleyv1.StreamingConsumeRequest_Start:
		return nil, invalidField("start", 0)
	case *parleyv1.StreamingConsumeRequest_Ack:
		if err := own(r.Ack.GetSessionId()); err != nil {
			return nil, err
		}
		return s.ackLocked(one, "ack.", r.Ack.GetTokens()), nil
	case *parleyv1.StreamingConsumeRequest_Nack:
		if err := own(r.Nack.GetSessionId()); err != nil {
			return nil, err
		}
		return s.nackLocked(one, "nack.", r.Nack.GetItems()), nil
	case *parleyv1.StreamingConsumeRequest_Extend:
		if err := own(r.Extend.GetSessionId()); err != nil {
			return nil, err
		}
		return s.extendLocked(one, "extend.", r.Extend)
	case *parleyv1.StreamingConsumeRequest_Update:
		if err := own(r.Update.GetSessionId()); err != nil {
			return nil, err
		}
		return nil, s.updateLocked(one, r.Update)
	default:
		if err := own(req.GetLeave().GetSessionId()); err != nil {
			return nil, err
		}
		return nil, s.leaveLocked(one)
	}
}

// sessionOf returns a session of the caller, or one that has ended.
func (s *shared) sessionOf(ctx context.Context, id string) (*session, error) {
	one := s.sessions[id]
	if one == nil {
		one = s.ended[id]
	}
	if one == nil || one.user != s.userLocked(ctx) {
		return nil, errSessionLost()
	}
	return one, nil
}

func (s *shared) ackLocked(one *session, prefix string, tokens []string) []*parleyv1.SettleResult {
	var results []*parleyv1.SettleResult
	for i, token := range tokens {
		results = append(results, settleResult(one.settleLocked(token, nil), fmt.Sprintf("%stokens[%d]", prefix, i), true))
	}
	s.tickLocked(time.Now())
	s.wakeLocked()
	return results
}

func (s *shared) nackLocked(one *session, prefix string, items []*parleyv1.NackItem) []*parleyv1.SettleResult {
	var results []*parleyv1.SettleResult
	for i, item := range items {
		results = append(results, settleResult(one.settleLocked(item.GetToken(), item), fmt.Sprintf("%sitems[%d]", prefix, i), false))
	}
	s.tickLocked(time.Now())
	s.wakeLocked()
	return results
}

// settleLocked ends a delivery: with an ack, or with a nack if it is not nil.
func (one *session) settleLocked(token string, nack *parleyv1.NackItem) error {
	if nack != nil {
		if err := checkNack(nack); err != nil {
			return err
		}
	}
	topicName, seq, ok := parseToken(token)
	if !ok {
		return errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID, "token", 0)
	}
	g, err := one.s.groupLocked(topicName, one.group)
	if err != nil {
		return errDeliveryLost()
	}
	says := verdict{token, one.id, verdictOf(nack)}
	j := one.held[token]
	if j == nil {
		known, ok := g.verdicts[seq]
		switch {
		case ok && known == says:
			return nil
		case ok, g.find(seq) != nil, seq > g.topic.seq:
			return errDeliveryLost()
		default:
			return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_GONE)
		}
	}
	g.verdicts[seq] = says
	j.drop()
	switch {
	case nack == nil:
		g.settled(j)
		g.count(j.message).Acked++
	case nack.GetRelease() != nil:
		g.count(j.message).Redelivered++
	case nack.GetDeadLetter() != nil:
		j.attempts++
		j.reason, j.code = nack.GetReason(), nack.GetCode()
		j.bury()
	default:
		// A retry without a delay is due at once.
		j.failed(time.Now().Add(nack.GetRetry().GetDelay().AsDuration()), nack.GetReason(), nack.GetCode())
	}
	return nil
}

func verdictOf(nack *parleyv1.NackItem) string {
	switch {
	case nack == nil:
		return "ack"
	case nack.GetRelease() != nil:
		return "release"
	case nack.GetDeadLetter() != nil:
		return "dead letter"
	default:
		return "retry"
	}
}

// checkNack returns an error if a field of a nack is invalid.
func checkNack(n *parleyv1.NackItem) error {
	if err := checkForm(n); err != nil {
		return err
	}
	if n.GetRelease() != nil && n.GetReason()+n.GetCode() != "" {
		return invalidField("release", 0)
	}
	return nil
}

func (s *shared) extendLocked(one *session, prefix string, r *parleyv1.ExtendRequest) ([]*parleyv1.SettleResult, error) {
	if r.GetAll() != nil && r.GetBegun() {
		return nil, invalidField(prefix+"begun", 0)
	}
	now := time.Now()
	extend := func(j *job) {
		timeout := one.timeoutOf(j.group)
		if r.GetAckTimeout() != nil {
			timeout = r.GetAckTimeout().AsDuration()
		}
		j.until = now.Add(timeout)
	}
	if r.GetAll() != nil {
		for _, j := range one.held {
			extend(j)
		}
		return nil, nil
	}
	var results []*parleyv1.SettleResult
	for i, token := range r.GetDeliveries().GetTokens() {
		var err error
		if j := one.held[token]; j != nil {
			extend(j)
			if r.GetBegun() {
				j.begin(now)
			}
		} else if _, _, ok := parseToken(token); !ok {
			err = errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID, "token", 0)
		} else {
			err = errDeliveryLost()
		}
		results = append(results, settleResult(err, fmt.Sprintf("%sdeliveries.tokens[%d]", prefix, i), true))
	}
	s.wakeLocked()
	return results, nil
}

func (s *shared) updateLocked(one *session, r *parleyv1.UpdateSessionRequest) error {
	if s.sessions[one.id] != one {
		return errSessionLost()
	}
	for _, field := range []struct {
		limit *int64
		value int64
	}{
		{&one.limits.concurrency, int64(r.GetConcurrency())},
		{&one.limits.inFlight, int64(r.GetMaxInFlight())},
		{&one.limits.bytes, r.GetMaxInFlightBytes()},
	} {
		if field.value != 0 {
			*field.limit = field.value
		}
	}
	one.limits.inFlight = max(one.limits.inFlight, one.limits.concurrency)
	s.wakeLocked()
	return nil
}

// leaveLocked ends a session gracefully: what no handler has begun is returned.
func (s *shared) leaveLocked(one *session) error {
	if s.sessions[one.id] != one {
		return errSessionLost()
	}
	if !one.leaving {
		one.leaving, one.since = true, time.Now()
		one.release(func(_ string, j *job) bool { return !j.begun })
		for _, g := range one.groupsLocked() {
			s.shareLocked(g)
		}
	}
	s.wakeLocked()
	return nil
}

// Ack implements the service.
func (h queueHandler) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	return do(ctx, h.s, "Ack", req, func() (*parleyv1.AckResponse, error) {
		one, err := h.s.sessionOf(ctx, req.GetSessionId())
		if err != nil {
			return nil, err
		}
		return &parleyv1.AckResponse{Results: h.s.ackLocked(one, "", req.GetTokens())}, nil
	})
}

// Nack implements the service.
func (h queueHandler) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	return do(ctx, h.s, "Nack", req, func() (*parleyv1.NackResponse, error) {
		one, err := h.s.sessionOf(ctx, req.GetSessionId())
		if err != nil {
			return nil, err
		}
		return &parleyv1.NackResponse{Results: h.s.nackLocked(one, "", req.GetItems())}, nil
	})
}

// Extend implements the service.
func (h queueHandler) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	return do(ctx, h.s, "Extend", req, func() (*parleyv1.ExtendResponse, error) {
		one, err := h.s.sessionOf(ctx, req.GetSessionId())
		if err != nil {
			return nil, err
		}
		results, err := h.s.extendLocked(one, "", req)
		return &parleyv1.ExtendResponse{Results: results}, err
	})
}

// UpdateSession implements the service. Tokens have no expiry here.
func (h queueHandler) UpdateSession(
	ctx context.Context, req *parleyv1.UpdateSessionRequest,
) (*parleyv1.UpdateSessionResponse, error) {
	return do(ctx, h.s, "UpdateSession", req, func() (*parleyv1.UpdateSessionResponse, error) {
		one, err := h.s.sessionOf(ctx, req.GetSessionId())
		if err != nil {
			return nil, err
		}
		return &parleyv1.UpdateSessionResponse{}, h.s.updateLocked(one, req)
	})
}

// Leave implements the service.
func (h queueHandler) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	return do(ctx, h.s, "Leave", req, func() (*parleyv1.LeaveResponse, error) {
		one, err := h.s.sessionOf(ctx, req.GetSessionId())
		if err != nil {
			return nil, err
		}
		return &parleyv1.LeaveResponse{}, h.s.leaveLocked(one)
	})
}
