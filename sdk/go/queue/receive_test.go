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

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// plain is a fake of the calls that need no stream: Receive and its settlements, and the settings
// of topics and groups.
type plain struct {
	parleyv1connect.UnimplementedQueueServiceHandler
	parleyv1connect.UnimplementedAdminServiceHandler

	received *parleyv1.ReceiveRequest
	acks     [][]string
	nack     *parleyv1.NackItem
	failAck  bool
	topics   []string
	updates  []string
}

func (p *plain) Receive(_ context.Context, req *parleyv1.ReceiveRequest) (*parleyv1.ReceiveResponse, error) {
	p.received = req
	return &parleyv1.ReceiveResponse{SessionId: sessionID, Deliveries: []*parleyv1.Delivery{
		{Token: "a", MessageId: "id-a", Topic: "jobs"}, {Token: "b", MessageId: "id-b", Topic: "jobs"},
	}}, nil
}

func (p *plain) Ack(_ context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	p.acks = append(p.acks, req.GetTokens())
	if p.failAck { // the answer is lost
		p.failAck = false
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("scripted"))
	}
	if req.GetSessionId() != sessionID {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("session"))
	}
	return &parleyv1.AckResponse{Results: []*parleyv1.SettleResult{refused(deliveryGone), refused(deliveryLost)}}, nil
}

func (p *plain) Nack(_ context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	p.nack = req.GetItems()[0]
	return &parleyv1.NackResponse{Results: []*parleyv1.SettleResult{{}}}, nil
}

func (p *plain) Extend(_ context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	return &parleyv1.ExtendResponse{Results: make([]*parleyv1.SettleResult, len(req.GetDeliveries().GetTokens()))}, nil
}

func (p *plain) CreateTopic(_ context.Context, req *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
	if slices.Contains(p.topics, req.GetTopic().GetName()) {
		return nil, statusError(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS)
	}
	p.topics = append(p.topics, req.GetTopic().GetName())
	return &parleyv1.CreateTopicResponse{Topic: req.GetTopic()}, nil
}

func (p *plain) UpdateTopic(_ context.Context, req *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
	p.updates = append(p.updates, req.GetUpdateMask().GetPaths()...)
	return &parleyv1.UpdateTopicResponse{Topic: req.GetTopic()}, nil
}

func (*plain) CreateGroup(context.Context, *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	return nil, statusError(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS)
}

func (*plain) GetGroup(_ context.Context, req *parleyv1.GetGroupRequest) (*parleyv1.GetGroupResponse, error) {
	return &parleyv1.GetGroupResponse{Group: &parleyv1.Group{Name: req.GetGroup(), Paused: true}}, nil
}

func (p *plain) start(t *testing.T) *parley.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewQueueServiceHandler(p))
	mux.Handle(parleyv1connect.NewAdminServiceHandler(p))
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
