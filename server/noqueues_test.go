package server_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/servertest"
)

// Without redis-server on PATH `parleyd dev` serves messages, says that it has no queues, and answers every call about them
// so: what is wrong with a call is told first.
func TestDevWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cfg := server.DevConfig()
	cfg.DataDir, cfg.Listen, cfg.OpsListen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "127.0.0.1:0"
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
	if err := srv.Banner(&banner); err != nil || !strings.Contains(banner.String(), "queues: none, for they need redis-server") {
		t.Errorf("%v: the banner is\n%s", err, banner.String())
	}

	mint := func(p *ident.Principal) *http.Client {
		t.Helper()
		token, err := authn.Mint(srv.DevSecret(), p, cfg.Limits.UnaryTimeout)
		if err != nil {
			t.Fatal(err)
		}
		return servertest.HTTPClient(t, token)
	}
	hc := mint(&ident.Principal{
		Subject: "ada", Admin: ident.AdminActions,
		Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send}}},
		Queues:   []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Produce, ident.Consume}}},
	})
	nobody := mint(&ident.Principal{Subject: "eve"})
	for name, opts := range options {
		queues, admin := parleyv1connect.NewQueueServiceClient(hc, srv.URL(), opts...), parleyv1connect.NewAdminServiceClient(hc, srv.URL(), opts...)
		for call, err := range map[string]error{
			"create a topic":    callErr(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}})),
			"create a group":    callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: "g"})),
			"list topics":       callErr(admin.ListTopics(ctx, &parleyv1.ListTopicsRequest{})),
			"produce":           callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{}}})),
			"ack":               callErr(queues.Ack(ctx, &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s", Tokens: []string{"t"}})),
			"consume":           consumeErr(ctx, queues),
			"consume both ways": bothWaysErr(ctx, queues),
		} {
			d := detailOf(t, err)
			if connect.CodeOf(err) != connect.CodeUnavailable || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE ||
				!strings.Contains(err.Error(), "this server has no queues") {
				t.Errorf("%s: to %s is answered %v, %v", name, call, err, d)
			}
		}
		bad := callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs"}))
		if connect.CodeOf(bad) != connect.CodeInvalidArgument {
			t.Errorf("%s: a group without a name is answered %v", name, bad)
		}
		denied := callErr(parleyv1connect.NewAdminServiceClient(nobody, srv.URL(), opts...).ListTopics(ctx, &parleyv1.ListTopicsRequest{}))
		if connect.CodeOf(denied) != connect.CodePermissionDenied {
			t.Errorf("%s: who is no operator is answered %v", name, denied)
		}
		send(t, parleyv1connect.NewMessageServiceClient(hc, srv.URL(), opts...), "room", "messages work")
	}
}

// consuming asks for the deliveries of a topic's group g.
func consuming(topic string) *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{Topic: topic, Group: "g", Consumer: "c", MaxMessages: 10}
}

// consumeErr opens a stream and gives the error that ends it, or nil once it has a frame.
func consumeErr(ctx context.Context, c parleyv1connect.QueueServiceClient) error {
	s, err := c.Consume(ctx, consuming("jobs"))
	if err != nil {
		return err
	}
	defer s.Close()
	s.Receive()
	return s.Err()
}

// bothWaysErr is consumeErr for a stream in both directions.
func bothWaysErr(ctx context.Context, c parleyv1connect.QueueServiceClient) error {
	s, err := c.StreamingConsume(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.CloseResponse() }()
	_ = s.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consuming("jobs")}}) // Receive tells
	defer func() { _ = s.CloseRequest() }()
	return callErr(s.Receive())
}
