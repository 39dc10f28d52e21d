package server_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

func queuesOf(t *testing.T, s *servertest.Server) parleyv1connect.QueueServiceClient {
	t.Helper()
	return parleyv1connect.NewQueueServiceClient(servertest.HTTPClient(t, s.Token), s.URL)
}

// TestQueuesAreServed checks that the nodes of a fleet deliver messages, and that any node accepts
// what a consumer says. Consumers are told to go elsewhere when their node stops, and there their
// session goes on.
func TestQueuesAreServed(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.KeyPrefix = "p:" }))
	other := s.Join()
	admin := parleyv1connect.NewAdminServiceClient(servertest.HTTPClient(t, s.Token), s.URL)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs", Partitions: 2}}))
	must(admin.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: &parleyv1.Group{Name: "g"}}))
	here, there := queuesOf(t, s), queuesOf(t, other)
	must(there.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "b"}, {Key: "c"}}}))

	request := &parleyv1.ConsumeRequest{Topics: []string{"jobs"}, Group: "g", Consumer: "c", Concurrency: 3}
	var session string
	var tokens []string
	read := func(stream *connect.ServerStreamForClient[parleyv1.ConsumeResponse], until func() bool) {
		t.Helper()
		for !until() {
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			if started := stream.Msg().GetStarted(); started != nil {
				session = started.GetSessionId()
			}
			for _, d := range stream.Msg().GetDeliveries().GetDeliveries() {
				tokens = append(tokens, d.GetToken())
			}
		}
	}
	stream, err := here.Consume(t.Context(), request)
	must(nil, err)
	read(stream, func() bool { return len(tokens) == 3 })
	for i, c := range []parleyv1connect.QueueServiceClient{here, there} {
		r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: tokens[i : i+1]})
		if err != nil || r.GetResults()[0].GetError() != nil {
			t.Fatal(r, err)
		}
	}
	testkit.Eventually(t, 20*time.Second, func() error { // once the nodes know each other
		return callErr(there.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: session, Concurrency: 4, MaxInFlight: 4}))
	})
	s.Stop()
	for stream.Receive() {
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodeUnavailable || detailOf(t, err).GetReason() != parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN {
		t.Errorf("the end: %v", err)
	}
	before := session
	request.Resume = &parleyv1.Resume{SessionId: session, Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: tokens[2], Begun: true}}}
	resumed, err := there.Consume(t.Context(), request)
	must(nil, err)
	session = ""
	read(resumed, func() bool { return session != "" })
	if session != before {
		t.Errorf("resumed %s as %s", before, session)
	}
	r, err := there.Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: tokens[2:]})
	if err != nil || r.GetResults()[0].GetError() != nil {
		t.Error(r, err)
	}
}
