package testkit

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/parleyhq/parley/internal/rig"
)

// The name under which the Sentinel of a RedisFailover watches the Redis master, and the Sentinel's
// only user.
const (
	SentinelMaster   = "parley"
	SentinelUser     = "watcher"
	SentinelPassword = "sentinel-password"
)

// RedisFailover is two redis-servers and a Sentinel that chooses which of them is the master. All
// end with the test.
type RedisFailover struct {
	// Servers are the redis-server that is the master at first, and its replica.
	Servers [2]*RedisServer
	// Addrs are the servers' host:port.
	Addrs [2]string
	// Sentinel is the Sentinel's host:port.
	Sentinel string
}

// NewRedisFailover starts the three processes. Clients need SentinelUser and SentinelPassword for
// the Sentinel.
func NewRedisFailover(tb testing.TB) *RedisFailover {
	tb.Helper()
	addrs, err := rig.FreeAddrs(3)
	if err != nil {
		tb.Fatal(err)
	}
	f := &RedisFailover{Addrs: [2]string{addrs[0], addrs[1]}, Sentinel: addrs[2]}
	host, port := splitAddr(tb, addrs[0])
	f.Servers[0] = Redis(tb, RedisArgs("--bind", host, "--port", port))
	_, replicaPort := splitAddr(tb, addrs[1])
	f.Servers[1] = Redis(tb, RedisArgs("--bind", host, "--port", replicaPort, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0"))
	dir, err := rig.TempDir("sentinel")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := rig.StartSentinel(context.Background(), rig.SentinelConfig{
		Dir: dir, Addr: f.Sentinel, Master: SentinelMaster, MasterAddr: addrs[0], Username: SentinelUser, Password: SentinelPassword,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return f
}

func splitAddr(tb testing.TB, addr string) (host, port string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	return host, port
}
