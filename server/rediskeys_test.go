package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/testkit"
)

// The tests in this file check that each key of the section redis does what it says, on a real
// redis-server. That of message_cache_max_len is TestSessionListIsBounded, those of the ways to
// reach Redis are in engine_test.go.

// connections returns how many connections the server has, without that of admin.
func connections(t *testing.T, admin *redis.Client) int {
	t.Helper()
	list, err := admin.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "\n") - 1
}

// single returns a client with at most one connection.
func single(t *testing.T, server *testkit.RedisServer) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), PoolSize: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedisAddr(t *testing.T) {
	t.Parallel()
	here, other := testkit.Redis(t), testkit.Redis(t)
	if err := redisOf(t, "ADDR="+here.Addr()).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if here.Client(t).Exists(t.Context(), "k").Val() != 1 || other.Client(t).DBSize(t.Context()).Val() != 0 {
		t.Error("the key is on another server")
	}
}

func TestRedisPassword(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	admin := single(t, server)
	if err := admin.ConfigSet(t.Context(), "requirepass", "s3cr3t").Err(); err != nil {
		t.Fatal(err)
	}
	if err := redisOf(t, "ADDR="+server.Addr(), "PASSWORD=s3cr3t").Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	for name, env := range map[string][]string{"none": nil, "a wrong one": {"PASSWORD=other"}} {
		if err := redisOf(t, append(env, "ADDR="+server.Addr())...).Ping(t.Context()).Err(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestRedisDB(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	if err := redisOf(t, "ADDR="+server.Addr(), "DB=3").Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if space := server.Client(t).Info(t.Context(), "keyspace").Val(); !strings.Contains(space, "db3:keys=1,") || strings.Contains(space, "db0:") {
		t.Errorf("the keys are in %s", space)
	}
}

func TestRedisPoolSize(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	admin := single(t, server)
	c := redisOf(t, "ADDR="+server.Addr(), "POOL_SIZE=2", "MIN_IDLE_CONNS=0")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for range 2 {
		go func() {
			c.BLPop(ctx, time.Minute, "never")
			ended <- struct{}{}
		}()
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := strings.Count(admin.ClientList(t.Context()).Val(), "cmd=blpop"); n != 2 {
			return fmt.Errorf("%d connections are busy", n)
		}
		return nil
	})
	if err := c.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrPoolTimeout) {
		t.Errorf("a third connection: %v", err)
	}
	if n := connections(t, admin); n != 2 {
		t.Errorf("%d connections", n)
	}
	cancel()
	if err := admin.RPush(t.Context(), "never", "a", "b").Err(); err != nil {
		t.Error(err)
	}
	<-ended
	<-ended
}

func TestRedisMinIdleConns(t *testing.T) {
	t.Parallel()
	for _, want := range []int{0, 7} {
		server := testkit.Redis(t)
		admin := single(t, server)
		c := redisOf(t, "ADDR="+server.Addr(), fmt.Sprint("MIN_IDLE_CONNS=", want))
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 10*time.Second, func() error {
			if n := connections(t, admin); n < max(1, want) || n > want+1 { // one is in use when the others are made
				return fmt.Errorf("%d connections with %d idle ones", n, want)
			}
			return nil
		})
	}
}

// long is longer than these tests wait, for the timeouts that they are not about.
var long = []string{"DIAL_TIMEOUT_MS=60000", "READ_TIMEOUT_MS=60000", "WRITE_TIMEOUT_MS=60000"}

// waits fails the test unless fn fails with a timeout after about 300 ms.
func waits(t *testing.T, fn func() error) {
	t.Helper()
	began := time.Now()
	err := fn()
	took := time.Since(began)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the error is %v", err)
	}
	if took < 250*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestRedisDialTimeout connects to a socket whose queue of connections is full. It answers no more
// packets, as a host that is down.
func TestRedisDialTimeout(t *testing.T) {
	t.Parallel()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprint("127.0.0.1:", bound.(*syscall.SockaddrInet4).Port)
	dialer := net.Dialer{Timeout: 200 * time.Millisecond}
	for {
		conn, err := dialer.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	c := redisOf(t, append(long[1:], "DIAL_TIMEOUT_MS=300", "ADDR="+addr, "MIN_IDLE_CONNS=0")...)
	waits(t, func() error { return c.Ping(t.Context()).Err() })
}

func TestRedisReadTimeout(t *testing.T) {
	t.Parallel()
	proxy := testkit.NewProxy(t, "unix", testkit.Redis(t).Addr())
	c := redisOf(t, "ADDR="+proxy.Addr(), long[0], long[2], "READ_TIMEOUT_MS=300", "MIN_IDLE_CONNS=0")
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Stall()
	waits(t, func() error { return c.Ping(t.Context()).Err() })
}

// TestRedisWriteTimeout sends more to a halted server than the buffers of a connection hold.
func TestRedisWriteTimeout(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	c := redisOf(t, "ADDR="+server.Addr(), long[0], long[1], "WRITE_TIMEOUT_MS=300", "MIN_IDLE_CONNS=0")
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	defer server.Cont()
	large := strings.Repeat("x", 64<<20)
	waits(t, func() error { return c.Set(t.Context(), "k", large, 0).Err() })
}
