package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// TestQueueMetrics checks that a server reports the metrics of queues, and that one node lists the
// consumers of another.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.KeyPrefix = "p:" }))
	other := s.Join()
	client := servertest.HTTPClient(t, s.Token)
	admin := parleyv1connect.NewAdminServiceClient(client, s.URL)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{
		Name: "jobs", Partitions: 1, Retention: &parleyv1.TopicRetention{MaxAge: durationpb.New(time.Hour)},
	}}))
	must(admin.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: &parleyv1.Group{Name: "g"}}))
	queue := queuesOf(t, s)
	must(queue.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "a"}, {Key: "a"}}}))
	stream, err := queue.Consume(t.Context(), &parleyv1.ConsumeRequest{Topics: []string{"jobs"}, Group: "g", Consumer: "c", Concurrency: 2})
	must(nil, err)
	var session string
	var tokens []string
	for len(tokens) < 2 {
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
	must(queue.Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: tokens[:1]}))

	there := parleyv1connect.NewAdminServiceClient(servertest.HTTPClient(t, other.Token), other.URL)
	testkit.Eventually(t, 20*time.Second, func() error { // once the nodes know each other
		r, err := there.ListConsumers(t.Context(), &parleyv1.ListConsumersRequest{Topic: "jobs", Group: "g"})
		if c := r.GetConsumers(); err != nil || len(c) != 1 || c[0].GetConsumer() != "c" || c[0].GetNodeId() == "" || len(r.GetMissingNodes()) > 0 {
			return fmt.Errorf("consumers %v, %w", r, err)
		}
		return nil
	})
	testkit.Eventually(t, 60*time.Second, func() error { // the keeper's numbers are at most 10 s old, the list of its topics too
		all := metricsOf(t, s) + metricsOf(t, other)
		for _, line := range []string{
			`parley_queue_produced_total{partition="0",result="stored",topic="jobs"} 3`,
			`parley_queue_acked_total{group="g",partition="0",topic="jobs"} 1`,
			`parley_queue_consumed_total{group="g",partition="0",topic="jobs"} 3`,
			`parley_queue_handle_duration_seconds_count{group="g",result="acked",topic="jobs"} 1`,
			`parley_queue_in_flight{group="g",partition="0",topic="jobs"} 2`,
			`parley_queue_partitions_owned{group="g",topic="jobs"} 1`,
			`parley_queue_sessions{group="g",topic="jobs"} 1`,
			`parley_queue_open{group="g",partition="0",topic="jobs"} 2`,
			`parley_queue_unread{group="g",partition="0",topic="jobs"} 0`,
			`parley_queue_oldest_age{group="g",partition="0",topic="jobs"} `,
			`parley_queue_depth{partition="0",topic="jobs"} `,
		} {
			if !strings.Contains(all, "\n"+line) {
				return fmt.Errorf("there is no %s in\n%s", line, queueLines(all))
			}
		}
		return nil
	})
}

// metricsOf returns all metrics of a node.
func metricsOf(t *testing.T, n *servertest.Server) string {
	t.Helper()
	resp, err := http.Get(n.OpsURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s, %v: %.500s", resp.Status, err, data)
	}
	return "\n" + string(data)
}

// queueLines returns the lines about queues.
func queueLines(all string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(all, "\n") {
		if strings.HasPrefix(line, "parley_queue_") && !strings.Contains(line, "_bucket") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
