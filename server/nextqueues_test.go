package server_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/servertest"
)

func nextQueues(t *testing.T, s *servertest.Server) nextv1connect.QueueServiceClient {
	t.Helper()
	return nextv1connect.NewQueueServiceClient(servertest.HTTPClient(t, s.Token), s.URL)
}

// TestNextQueuesAreOffByDefault checks that a server without `queues.next` does not know the
// queues' second design.
func TestNextQueuesAreOffByDefault(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	_, err := nextQueues(t, s).Ack(t.Context(), &nextv1.AckRequest{Tokens: []string{"t"}})
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Error(err)
	}
}

// TestNextQueuesAreServed checks that a server with `queues.next` delivers messages of the second
// design, and that its consumers are told to go elsewhere when it stops.
func TestNextQueuesAreServed(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Queues.Next, c.Redis.KeyPrefix = true, "p:" }))
	store := redislog.NewStore(s.Redis.Client(t), redislog.StoreConfig{Prefix: "p:next:"})
	topic := &qlog.Topic{
		Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, State: qlog.Making, Partitions: 1, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: time.Minute}, CreatedAt: time.Now(), Groups: []qlog.Group{{
			Name: "g", AckTimeout: time.Minute, Timeout: time.Minute, MaxRunTime: time.Hour, ResumeGrace: time.Minute,
			Retry: qlog.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		}},
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.InsertTopic(t.Context(), topic))
	must(nil, store.MakePartition(t.Context(), topic, 0))
	topic.State = qlog.Live
	must(nil, store.UpdateTopic(t.Context(), topic))
	must(store.Put(t.Context(), topic.Ref(0), topic.Bounds, qlog.Put{Drafts: []qlog.Draft{{Key: "k"}}}))

	c := nextQueues(t, s)
	stream, err := c.Consume(t.Context(), &nextv1.ConsumeRequest{Topics: []string{"jobs"}, Group: "g", Consumer: "c"})
	must(nil, err)
	var session, token string
	for token == "" {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if started := stream.Msg().GetStarted(); started != nil {
			session = started.GetSessionId()
		}
		for _, d := range stream.Msg().GetDeliveries().GetDeliveries() {
			token = d.GetToken()
		}
	}
	r, err := c.Ack(t.Context(), &nextv1.AckRequest{SessionId: session, Tokens: []string{token}})
	if err != nil || r.GetResults()[0].GetError() != nil {
		t.Fatal(r, err)
	}
	s.Stop()
	for stream.Receive() {
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodeUnavailable || detailOf(t, err).GetReason() != parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN {
		t.Errorf("the end: %v", err)
	}
}
