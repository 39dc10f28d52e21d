package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// readiness returns the status of /readyz, and what it says of each engine.
func readiness(t *testing.T, s *servertest.Server) (status int, outcomes map[string]string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.OpsURL+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&outcomes); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, outcomes
}

// TestStartWithoutRedis checks that a node starts, is ready and serves messages while Redis is
// away, that it does not use a Redis that may lose data when it comes back, and that it uses it
// once it is safe.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := testkit.Redis(t, testkit.RedisArgs("--maxmemory-policy", "allkeys-lru"))
	redis.Kill()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.Addr = redis.Addr() }))
	status, outcomes := readiness(t, s)
	if status != http.StatusOK || outcomes["redis"] == "ok" || outcomes["store"] != "ok" {
		t.Errorf("/readyz: %d %v", status, outcomes)
	}
	c := s.Client(s.Token)
	sent := send(t, c, "room", "hello")
	page, err := c.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room"})
	if err != nil || len(page.GetMessages()) != 1 || page.GetMessages()[0].GetMsgId() != sent.GetMsgId() {
		t.Errorf("the list is %v, %v", page, err)
	}
	topic := func() error {
		_, err := s.QueueAdmin(s.Token).CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{
			Topic: &parleyv1.Topic{Name: "jobs", Partitions: 1},
		})
		return err
	}
	if err := topic(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("CreateTopic without Redis: %v", err)
	}

	redis.Start()
	testkit.Eventually(t, 20*time.Second, func() error {
		if _, outcomes := readiness(t, s); !strings.Contains(outcomes["redis"], "maxmemory-policy") {
			return fmt.Errorf("/readyz says of an unsafe Redis: %q", outcomes["redis"])
		}
		return nil
	})
	if err := topic(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("CreateTopic with an unsafe Redis: %v", err)
	}
	client := redis.Client(t)
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("the unsafe Redis has %d keys", n)
	}

	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, topic)
	if _, outcomes := readiness(t, s); outcomes["redis"] != "ok" {
		t.Errorf("/readyz says of a safe Redis: %q", outcomes["redis"])
	}
}

// TestReadyWithoutNATS checks that a node without NATS is ready: messages are sent and read.
func TestReadyWithoutNATS(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t)
	s.NATS.Stop()
	testkit.Eventually(t, 20*time.Second, func() error {
		status, outcomes := readiness(t, s)
		if status != http.StatusOK || outcomes["nats"] == "ok" || outcomes["jetstream"] == "ok" {
			return fmt.Errorf("/readyz: %d %v", status, outcomes)
		}
		return nil
	})
	c := s.Client(s.Token)
	send(t, c, "room", "hello")
	s.NATS.Start()
}

// TestOtherLayoutEndsTheNode checks that a node that started without Redis ends, as its start would
// have, if the Redis then has queues of another version.
func TestOtherLayoutEndsTheNode(t *testing.T) {
	t.Parallel()
	redis := testkit.Redis(t, testkit.RedisAppendOnly())
	if err := redis.Client(t).Set(t.Context(), "streaming:mq:layout", "999", 0).Err(); err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.Addr = redis.Addr() }))
	redis.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Ended(ctx); err == nil || !strings.Contains(err.Error(), "layout 999 and this parleyd needs layout 2") {
		t.Errorf("the node ended with %v", err)
	}
}
