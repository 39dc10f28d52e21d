package redisqueue

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// isUnknown fails the test unless err says, to both kinds of callers, that the outcome is not known.
func isUnknown(t *testing.T, err error) {
	t.Helper()
	f, ok := fault.As(err)
	if !errors.Is(err, queue.ErrUnknownOutcome) || !ok || f.Kind != fault.Unavailable || f.Reason != fault.OutcomeUnknown {
		t.Errorf("not an unknown outcome: %v", err)
	}
}

func isUnavailable(t *testing.T, err error) {
	t.Helper()
	f, ok := fault.As(err)
	if errors.Is(err, queue.ErrUnknownOutcome) || !ok || f.Kind != fault.Unavailable || f.Reason != fault.StoreUnavailable {
		t.Errorf("not a store that is away: %v", err)
	}
}

// evalsha accepts calls of scripts.
func evalsha(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) }

func TestLostReplyIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	proxy := testkit.NewProxy(t, "unix", server.Addr())
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client)
	topic := newTopic(t, s, nil)
	produce(t, s, topic, message("", "so that the script is known"))
	proxy.LoseReplies(1, evalsha)
	batch := []queue.Draft{keyed("", "1", "one"), keyed("", "2", "two")}
	_, err := s.Produce(t.Context(), topic, 0, batch)
	isUnknown(t, err)
	_, err = s.Next(t.Context(), []queue.Line{{Ref: topic.Ref(0)}})
	isUnavailable(t, err) // what only reads has done nothing
	proxy.Heal()
	taken, err := s.Produce(t.Context(), topic, 0, batch)
	if err != nil || !taken[0].Duplicate || !taken[1].Duplicate {
		t.Errorf("the repeat: %+v, %v", taken, err)
	}
	if length(t, s, topic) != 3 || stat(t, s, topic, "", "produced") != 3 {
		t.Errorf("%d entries", length(t, s, topic))
	}
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	s := newStore(t, server.Client(t))
	topic := newTopic(t, s, nil)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Produce(ctx, topic, 0, []queue.Draft{message("", "x")})
	isUnknown(t, err)
	server.Cont()
	server.Kill()
	// The first calls may find connections that the server has left open.
	testkit.Eventually(t, 10*time.Second, func() error {
		if _, err = s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "x")}); errors.Is(err, queue.ErrUnknownOutcome) {
			return err
		}
		return nil
	})
	isUnavailable(t, err)
	_, err = s.InsertTopic(t.Context(), topic)
	isUnavailable(t, err)
	_, err = s.TopicNames(t.Context())
	isUnavailable(t, err)
}

// TestClusterRepeatsNothing loses answers between a cluster and its client, which would by itself send the command again.
func TestClusterRepeatsNothing(t *testing.T) {
	t.Parallel()
	cluster, addrs := testkit.RedisClusterClient(t), testkit.RedisCluster(t)
	direct := newStore(t, cluster)
	topic := newTopic(t, direct, nil)
	produce(t, direct, topic, message("", "so that the script is known"))
	proxies := map[string]*testkit.Proxy{}
	for _, addr := range addrs {
		proxies[addr] = testkit.NewProxy(t, "tcp", addr)
		proxies[addr].LoseReplies(1, evalsha)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, proxies[addr].Addr())
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s := NewStore(client, StoreConfig{Prefix: direct.keys.prefix})
	_, err := s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "once")})
	isUnknown(t, err)
	if n := length(t, direct, topic); n != 2 {
		t.Errorf("%d entries: the client has repeated the call", n)
	}
}
