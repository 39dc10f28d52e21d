package queue_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/nextqueue"
)

// plain is a fake of the calls that need no stream: Receive and its settlements, and the settings
// of topics and groups.
type plain struct {
	nextv1connect.UnimplementedQueueServiceHandler
	nextv1connect.UnimplementedQueueAdminServiceHandler

	received *nextv1.ReceiveRequest
	acks     [][]string
	nack     *nextv1.NackItem
	failAck  bool
	topics   []string
	updates  []string
}

func (p *plain) Receive(_ context.Context, req *nextv1.ReceiveRequest) (*nextv1.ReceiveResponse, error) {
	p.received = req
	return &nextv1.ReceiveResponse{SessionId: sessionID, Deliveries: []*nextv1.Delivery{
		{Token: "a", MessageId: "id-a", Topic: "jobs"}, {Token: "b", MessageId: "id-b", Topic: "jobs"},
	}}, nil
}

func (p *plain) Ack(_ context.Context, req *nextv1.AckRequest) (*nextv1.AckResponse, error) {
	p.acks = append(p.acks, req.GetTokens())
	if p.failAck { // the answer is lost
		p.failAck = false
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("scripted"))
	}
	if req.GetSessionId() != sessionID {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("session"))
	}
	return &nextv1.AckResponse{Results: []*nextv1.SettleResult{refused(deliveryGone), refused(deliveryLost)}}, nil
}

func (p *plain) Nack(_ context.Context, req *nextv1.NackRequest) (*nextv1.NackResponse, error) {
	p.nack = req.GetItems()[0]
	return &nextv1.NackResponse{Results: []*nextv1.SettleResult{{}}}, nil
}

func (p *plain) Extend(_ context.Context, req *nextv1.ExtendRequest) (*nextv1.ExtendResponse, error) {
	return &nextv1.ExtendResponse{Results: make([]*nextv1.SettleResult, len(req.GetDeliveries().GetTokens()))}, nil
}

func (p *plain) CreateTopic(_ context.Context, req *nextv1.CreateTopicRequest) (*nextv1.CreateTopicResponse, error) {
	if slices.Contains(p.topics, req.GetTopic().GetName()) {
		return nil, statusError(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS)
	}
	p.topics = append(p.topics, req.GetTopic().GetName())
	return &nextv1.CreateTopicResponse{Topic: req.GetTopic()}, nil
}

func (p *plain) UpdateTopic(_ context.Context, req *nextv1.UpdateTopicRequest) (*nextv1.UpdateTopicResponse, error) {
	p.updates = append(p.updates, req.GetUpdateMask().GetPaths()...)
	return &nextv1.UpdateTopicResponse{Topic: req.GetTopic()}, nil
}

func (*plain) CreateGroup(context.Context, *nextv1.CreateGroupRequest) (*nextv1.CreateGroupResponse, error) {
	return nil, statusError(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS)
}

func (*plain) GetGroup(_ context.Context, req *nextv1.GetGroupRequest) (*nextv1.GetGroupResponse, error) {
	return &nextv1.GetGroupResponse{Group: &nextv1.Group{Name: req.GetGroup(), Paused: true}}, nil
}

func (p *plain) start(t *testing.T) *parley.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(nextv1connect.NewQueueServiceHandler(p))
	mux.Handle(nextv1connect.NewQueueAdminServiceHandler(p))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c, err := parley.New(s.URL, parley.WithToken("tester"), parley.WithHTTPClient(s.Client()),
		parley.WithBackoff(parley.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}))
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	return c
}

// TestReceive receives two messages and settles them. The answer to the first Ack is lost, so its
// repeat finds the first message settled.
func TestReceive(t *testing.T) {
	t.Parallel()
	p := &plain{failAck: true}
	got, err := queue.Receive(t.Context(), p.start(t), queue.ReceiveRequest{
		Topic: "jobs", Group: "g", MaxMessages: 2, Wait: time.Second, AckTimeout: time.Minute,
	})
	if err != nil || len(got.Deliveries) != 2 || got.Deliveries[0].MessageID != "id-a" || got.Deliveries[0].Group != "g" {
		t.Fatalf("received %v, %v", got, err)
	}
	if r := p.received; r.GetWait().AsDuration() != time.Second || r.GetMaxMessages() != 2 || r.GetAckTimeout().AsDuration() != time.Minute {
		t.Errorf("request %v", r)
	}
	if errs, err := got.Extend(t.Context(), got.Deliveries...); err != nil || !slices.Equal(errs, []error{nil, nil}) {
		t.Errorf("extend: %v, %v", errs, err)
	}
	errs, err := got.Ack(t.Context(), got.Deliveries...)
	if err != nil || errs[0] != nil || !errors.Is(errs[1], parley.ErrDeliveryLost) {
		t.Errorf("ack: %v, %v", errs, err)
	}
	equal(t, "acks", [][]string{{"a", "b"}, {"a", "b"}}, p.acks)
	if err := got.Nack(t.Context(), got.Deliveries[1], queue.DeadLetter(errors.New("boom"))); err != nil || nacked(p.nack) != "dead b" {
		t.Errorf("nack %v, %v", p.nack, err)
	}
}

// TestEnsure creates a topic twice, and a group that exists.
func TestEnsure(t *testing.T) {
	t.Parallel()
	p := &plain{}
	admin := queue.NewAdmin(p.start(t))
	for range 2 {
		topic, err := admin.EnsureTopic(t.Context(), &queue.Topic{Name: "jobs", Partitions: 4}, "partitions")
		if err != nil || topic.GetName() != "jobs" {
			t.Errorf("%v, %v", topic, err)
		}
	}
	equal(t, "updates", []string{"partitions"}, p.updates)
	if _, err := admin.CreateTopic(t.Context(), &queue.Topic{Name: "jobs"}); !errors.Is(err, parley.ErrTopicExists) {
		t.Errorf("create again: %v", err)
	}
	if g, err := admin.EnsureGroup(t.Context(), "jobs", &queue.Group{Name: "g"}); err != nil || !g.GetPaused() {
		t.Errorf("ensure group: %v, %v", g, err)
	}
}
