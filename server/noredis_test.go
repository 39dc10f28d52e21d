package server_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/servertest"
)

// TestDevWithoutRedisServer checks that `parleyd dev` has every service without redis-server on
// PATH, that its banner says what a restart loses, and that a restart loses nothing else.
func TestDevWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cfg := server.DevConfig()
	cfg.DataDir, cfg.Listen, cfg.OpsListen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "127.0.0.1:0"
	life := func(first bool) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		srv, err := server.New(ctx, cfg, server.WithDev(), server.WithLogOutput(io.Discard))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		var banner bytes.Buffer
		if err := srv.Banner(&banner); err != nil || !strings.Contains(banner.String(), "a restart loses every topic") {
			t.Errorf("%v: the banner is\n%s", err, banner.String())
		}
		hc := servertest.HTTPClient(t, srv.DevToken())
		queues, admin := parleyv1connect.NewQueueServiceClient(hc, srv.URL()), parleyv1connect.NewAdminServiceClient(hc, srv.URL())
		messages := parleyv1connect.NewMessageServiceClient(hc, srv.URL())
		_, err = admin.GetTopic(ctx, &parleyv1.GetTopicRequest{Topic: "jobs"})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a topic before it is created: %v", err)
		}
		if err := callErr(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}})); err != nil {
			t.Fatal(err)
		}
		if err := callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{}}})); err != nil {
			t.Error(err)
		}
		if first {
			send(t, messages, "room", "stays")
		}
		list, err := messages.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "room"})
		if err != nil || len(list.GetMessages()) != 1 {
			t.Errorf("the messages are %v, %v", list, err)
		}
	}
	life(true)
	life(false)
}

// TestQueuesWithoutRedisServer checks that queues behave the same without redis-server.
func TestQueuesWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, test := range map[string]func(t *testing.T){
		"growth": TestDefaultTopicAddsPartitions, "pause": TestPauseIsPerTopicAndGroup, "codes": TestNonRetryableCodeCreatesDeadLetter,
		"dead letters": TestDeadLetterSelection, "tokens": TestHostileDeliveryTokens, "settlements": TestHostileSettledDeliveryStaysSettled,
		"consumers": TestHostileConsumerLimitPerSubject, "both ways": TestHostileStreamingConsumeRequests, "accepted": TestHostileQueueLimitsAreAccepted,
		"sessions": TestHostileSessions, "ids": TestHostileQueueMessageIDs,
	} {
		t.Run(name, test)
	}
}

// consuming returns a request for the deliveries of a topic's group g.
func consuming(topic string) *parleyv1.ConsumeRequest {
	r := consumingAs(topic, "g")
	r.Concurrency, r.MaxInFlight = 10, 20
	return r
}

// consumingAs returns a request for one delivery of a topic's group at a time.
func consumingAs(topic, group string) *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{Topics: []string{topic}, Group: group, Consumer: "c", Concurrency: 1, MaxInFlight: 1}
}

// consumeErr opens a stream and returns the error that ends it, or nil once it has a frame.
func consumeErr(ctx context.Context, c parleyv1connect.QueueServiceClient) error {
	s, err := c.Consume(ctx, consuming("jobs"))
	if err != nil {
		return err
	}
	defer s.Close()
	s.Receive()
	return s.Err()
}
