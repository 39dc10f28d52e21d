package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// looker is a fake of the admin calls that look at messages and mend topics, and of
// RescheduleMessages. It records the requests; its lists have two pages.
type looker struct {
	parleyv1connect.UnimplementedQueueServiceHandler
	parleyv1connect.UnimplementedAdminServiceHandler

	requests []proto.Message
}

func (l *looker) got(req proto.Message) { l.requests = append(l.requests, req) }

// nextPage returns the token of the page after that of a token.
func nextPage(token string) string {
	if token == "" {
		return "more"
	}
	return ""
}

func (l *looker) GetJob(_ context.Context, req *parleyv1.GetJobRequest) (*parleyv1.GetJobResponse, error) {
	l.got(req)
	return nil, statusError(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND)
}

func (l *looker) ListJobs(_ context.Context, req *parleyv1.ListJobsRequest) (*parleyv1.ListJobsResponse, error) {
	l.got(req)
	return &parleyv1.ListJobsResponse{
		Jobs: []*parleyv1.JobInfo{{MessageId: "id" + req.GetPageToken()}}, NextPageToken: nextPage(req.GetPageToken()),
	}, nil
}

func (l *looker) RetryJobs(_ context.Context, req *parleyv1.RetryJobsRequest) (*parleyv1.RetryJobsResponse, error) {
	l.got(req)
	return &parleyv1.RetryJobsResponse{Retried: 7}, nil
}

func (l *looker) ListConsumers(_ context.Context, req *parleyv1.ListConsumersRequest) (*parleyv1.ListConsumersResponse, error) {
	l.got(req)
	return &parleyv1.ListConsumersResponse{
		Consumers: []*parleyv1.ConsumerInfo{{Consumer: "c" + req.GetPageToken()}}, NextPageToken: nextPage(req.GetPageToken()),
		MissingNodes: []string{"n1"},
	}, nil
}

func (l *looker) ListPartitions(_ context.Context, req *parleyv1.ListPartitionsRequest) (*parleyv1.ListPartitionsResponse, error) {
	l.got(req)
	return &parleyv1.ListPartitionsResponse{Partitions: []*parleyv1.PartitionLease{{NodeId: "n1"}}}, nil
}

func (l *looker) ListDeadLetters(_ context.Context, req *parleyv1.ListDeadLettersRequest) (*parleyv1.ListDeadLettersResponse, error) {
	l.got(req)
	return &parleyv1.ListDeadLettersResponse{}, nil
}

func (l *looker) ReplayDeadLetters(_ context.Context, req *parleyv1.ReplayDeadLettersRequest) (*parleyv1.ReplayDeadLettersResponse, error) {
	l.got(req)
	return &parleyv1.ReplayDeadLettersResponse{Replayed: 3, More: true}, nil
}

func (l *looker) PurgeDeadLetters(_ context.Context, req *parleyv1.PurgeDeadLettersRequest) (*parleyv1.PurgeDeadLettersResponse, error) {
	l.got(req)
	return &parleyv1.PurgeDeadLettersResponse{Purged: 4}, nil
}

func (l *looker) TrimTopic(_ context.Context, req *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
	l.got(req)
	return &parleyv1.TrimTopicResponse{Removed: 5, Lost: 2}, nil
}

func (l *looker) RepairTopic(_ context.Context, req *parleyv1.RepairTopicRequest) (*parleyv1.RepairTopicResponse, error) {
	l.got(req)
	return &parleyv1.RepairTopicResponse{Topic: &parleyv1.Topic{Name: req.GetTopic()}, Repaired: []string{"group g"}}, nil
}

func (l *looker) RescheduleMessages(
	_ context.Context, req *parleyv1.RescheduleMessagesRequest,
) (*parleyv1.RescheduleMessagesResponse, error) {
	l.got(req)
	res := &parleyv1.RescheduleMessagesResponse{}
	for range req.GetMessageIds() {
		res.Results = append(res.Results, &parleyv1.RescheduleResult{
			Result: &parleyv1.RescheduleResult_DueTime{DueTime: timestamppb.New(time.Unix(9, 0))},
		})
	}
	return res, nil
}

func (l *looker) start(t *testing.T) *parley.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewQueueServiceHandler(l))
	mux.Handle(parleyv1connect.NewAdminServiceHandler(l))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c, err := parley.New(s.URL, parley.WithToken("tester"), parley.WithHTTPClient(s.Client()))
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	return c
}

// want checks the only request since the last call of want, and the results of the call.
func (l *looker) want(t *testing.T, req proto.Message, wantResults string, results ...any) {
	t.Helper()
	if len(l.requests) != 1 || !proto.Equal(l.requests[0], req) {
		t.Errorf("requests %v, want %v", l.requests, req)
	}
	equal(t, "results", wantResults, fmt.Sprint(results...))
	l.requests = nil
}

// TestAdminLook checks the requests and the results of the calls that look at messages.
func TestAdminLook(t *testing.T) {
	t.Parallel()
	l, ctx := &looker{}, t.Context()
	admin := queue.NewAdmin(l.start(t))
	_, err := admin.Job(ctx, "jobs", "id")
	l.want(t, &parleyv1.GetJobRequest{Topic: "jobs", MessageId: "id"}, "true", errors.Is(err, parley.ErrMessageNotFound))
	var ids []string
	for j, err := range admin.Jobs(ctx, "jobs", queue.JobQuery{Group: "g", State: queue.Retrying, Key: "k", Full: true}) {
		ids = append(ids, fmt.Sprint(j.GetMessageId(), err))
	}
	equal(t, "jobs", []string{"id<nil>", "idmore<nil>"}, ids)
	l.requests = l.requests[:1]
	l.want(t, &parleyv1.ListJobsRequest{
		Topic: "jobs", Group: "g", State: parleyv1.JobState_JOB_STATE_RETRYING, Key: "k", Full: true,
	}, "")
	n, err := admin.RetryJobs(ctx, "jobs", "g", "a", "b")
	l.want(t, &parleyv1.RetryJobsRequest{Topic: "jobs", Group: "g", MessageIds: []string{"a", "b"}}, "7 <nil>", n, err)
	consumers, missing, err := admin.Consumers(ctx, "jobs", "g")
	l.requests = l.requests[:1]
	l.want(t, &parleyv1.ListConsumersRequest{Topic: "jobs", Group: "g"}, "2 cmore[n1] <nil>", len(consumers), " ", consumers[1].GetConsumer(), missing, err)
	leases, err := admin.Partitions(ctx, "jobs", "g")
	l.want(t, &parleyv1.ListPartitionsRequest{Topic: "jobs", Group: "g"}, "n1<nil>", leases[0].GetNodeId(), err)
}

// TestAdminMend checks the requests and the results of the calls for dead letters, Trim,
// RepairTopic and RescheduleAt.
func TestAdminMend(t *testing.T) {
	t.Parallel()
	l, ctx := &looker{}, t.Context()
	client := l.start(t)
	admin := queue.NewAdmin(client)
	for d, err := range admin.DeadLetters(ctx, "jobs", "g", queue.WithCode("bad")) {
		t.Errorf("dead letter %v, %v", d, err)
	}
	l.want(t, &parleyv1.ListDeadLettersRequest{Topic: "jobs", Group: "g", Code: "bad", Full: true}, "")
	group := &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: "g"}}
	n, more, err := admin.ReplayDeadLetters(ctx, "jobs", queue.DeadLettersOf("g"), queue.WithLimit(20_000), queue.ToTopic("other"))
	l.want(t, &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: group, Limit: 10_000, ToTopic: "other"},
		"3 true <nil>", n, more, err)
	n, err = admin.PurgeDeadLetters(ctx, "jobs", queue.DeadLettersOf("g"), "jobs")
	l.want(t, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: group, Confirm: "jobs"}, "4 <nil>", n, err)
	removed, lost, err := admin.Trim(ctx, "jobs", queue.KeepNewest(1), queue.WithUnsettled())
	l.want(t, &parleyv1.TrimTopicRequest{Topic: "jobs", Force: true, Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: 1}},
		"5 2 <nil>", removed, lost, err)
	topic, missing, err := admin.RepairTopic(ctx, "jobs")
	l.want(t, &parleyv1.RepairTopicRequest{Topic: "jobs"}, "jobs[group g] <nil>", topic.GetName(), missing, err)
	at := time.Unix(5, 0)
	due, err := queue.NewProducer(client, "jobs").RescheduleAt(ctx, at, "a", "b")
	l.want(t, &parleyv1.RescheduleMessagesRequest{
		Topic: "jobs", MessageIds: []string{"a", "b"}, Due: &parleyv1.RescheduleMessagesRequest_DeliverAt{DeliverAt: timestamppb.New(at)},
	}, "9 <nil>", due[1].DueTime.Unix(), err)
}
