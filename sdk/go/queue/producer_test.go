package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

func stored(req *parleyv1.ProduceRequest) *parleyv1.ProduceResponse {
	res := &parleyv1.ProduceResponse{}
	for _, m := range req.GetMessages() {
		res.Results = append(res.Results, &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Produced{
			Produced: &parleyv1.ProducedMessage{MessageId: "id-" + string(m.GetPayload())},
		}})
	}
	return res
}

func itemError(code parleyv1.StatusCode, reason parleyv1.ErrorReason) *parleyv1.ItemError {
	return &parleyv1.ItemError{Code: code, Detail: &parleyv1.ErrorDetail{Reason: reason}}
}

// TestProduceRepeatsUnchanged fails a request as a whole and then one of its items. Each repeat
// must be the same request; the next request must have the next sequence.
func TestProduceRepeatsUnchanged(t *testing.T) {
	t.Parallel()
	f := &fake{answer: func(n int, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
		res := stored(req)
		switch n {
		case 0:
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("answer lost"))
		case 1:
			res.Results[1] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{Error: itemError(
				parleyv1.StatusCode_STATUS_CODE_UNAVAILABLE, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)}}
		}
		res.RoutedBy = 8
		return res, nil
	}}
	p := queue.NewProducer(f.start(t), "jobs")
	results, err := p.Produce(t.Context(), queue.Message{Payload: []byte("a")}, queue.Message{
		Payload: []byte("b"), Delay: time.Second, TTL: time.Minute, MaxAttempts: 3, Timeout: time.Hour,
		IdempotencyKey: "i", Unique: &queue.Unique{Key: "u", OnConflict: queue.Replace},
	})
	if err != nil || queue.Errors(results) != nil || results[1].Receipt.MessageID != "id-b" {
		t.Fatalf("produce: %v, %v", results, err)
	}
	if _, err := p.Produce(t.Context(), queue.Message{Payload: []byte("c")}); err != nil {
		t.Fatalf("produce: %v", err)
	}
	if len(f.produced) != 4 {
		t.Fatalf("%d requests, want 4", len(f.produced))
	}
	first, last := f.produced[0], f.produced[3]
	if !proto.Equal(first, f.produced[1]) || !proto.Equal(first, f.produced[2]) {
		t.Errorf("repeats differ: %v", f.produced)
	}
	if len(first.GetProducerId()) != 16 || string(first.GetProducerId()) != string(last.GetProducerId()) ||
		first.GetSequence() != 1 || last.GetSequence() != 2 || first.GetRoutedBy() != 0 || last.GetRoutedBy() != 8 {
		t.Errorf("ids, sequences and routes: %v", f.produced)
	}
	m := first.GetMessages()[1]
	if m.GetDelay().AsDuration() != time.Second || m.GetTtl().AsDuration() != time.Minute || m.GetMaxAttempts() != 3 ||
		m.GetTimeout().AsDuration() != time.Hour || m.GetIdempotencyKey() != "i" || m.GetUnique().GetKey() != "u" {
		t.Errorf("message %v", m)
	}
}

// TestErrorsNameTheMessage refuses the second message.
func TestErrorsNameTheMessage(t *testing.T) {
	t.Parallel()
	f := &fake{answer: func(_ int, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
		res := stored(req)
		res.Results[1] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{Error: itemError(
			parleyv1.StatusCode_STATUS_CODE_ALREADY_EXISTS, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED)}}
		return res, nil
	}}
	results, err := queue.NewProducer(f.start(t), "jobs").Produce(t.Context(), make([]queue.Message, 3)...)
	all := queue.Errors(results)
	if err != nil || !errors.Is(all, parley.ErrIdempotencyKeyReused) || !strings.HasPrefix(fmt.Sprint(all), "message 1: ") {
		t.Errorf("%v, %v", all, err)
	}
}

// TestAtMost64Unanswered makes more requests than a producer may have unanswered.
func TestAtMost64Unanswered(t *testing.T) {
	t.Parallel()
	full, release := make(chan struct{}), make(chan struct{})
	f := &fake{answer: func(n int, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
		if n == 63 {
			close(full)
		}
		<-release
		return stored(req), nil
	}}
	p := queue.NewProducer(f.start(t), "jobs")
	var all sync.WaitGroup
	for range 80 {
		all.Go(func() {
			if _, err := p.Produce(t.Context(), queue.Message{}); err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	<-full
	f.mu.Lock()
	for _, req := range f.produced {
		if req.GetSequence() > 64 {
			t.Errorf("sequence %d while none is answered", req.GetSequence())
		}
	}
	f.mu.Unlock()
	close(release)
	all.Wait()
}

// TestCancel cancels two messages, one of which is being handled.
func TestCancel(t *testing.T) {
	t.Parallel()
	f := &fake{cancel: func(*parleyv1.CancelMessagesRequest) *parleyv1.CancelMessagesResponse {
		return &parleyv1.CancelMessagesResponse{Results: []*parleyv1.CancelResult{{}, {Error: itemError(
			parleyv1.StatusCode_STATUS_CODE_NOT_FOUND, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND)}}}
	}}
	errs, err := queue.NewProducer(f.start(t), "jobs").Cancel(t.Context(), "a", "b")
	if err != nil || errs[0] != nil || !errors.Is(errs[1], parley.ErrMessageNotFound) {
		t.Errorf("%v, %v", errs, err)
	}
}

// TestSendTellsTheLastFailure ends the context of a Send while its topic is full. The error must
// wrap both.
func TestSendTellsTheLastFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{answer: func(n int, _ *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
		if n == 3 {
			cancel()
		}
		return &parleyv1.ProduceResponse{Results: []*parleyv1.ProduceResult{{Result: &parleyv1.ProduceResult_Error{Error: itemError(
			parleyv1.StatusCode_STATUS_CODE_RESOURCE_EXHAUSTED, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL)}}}}, nil
	}}
	_, err := queue.NewProducer(f.start(t), "jobs").Send(ctx, queue.Message{})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, parley.ErrTopicFull) {
		t.Errorf("%v", err)
	}
}
