package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/store/redisstore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// redisOf connects as a server with these variables does. They are given as in "DB=3", without
// their prefix PARLEY_REDIS_.
func redisOf(t *testing.T, env ...string) redis.UniversalClient {
	t.Helper()
	for i := range env {
		env[i] = "PARLEY_REDIS_" + env[i]
	}
	cfg, err := config.Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	client, err := redisConfig(&cfg.Redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := redisstore.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// redisTLSServer starts a Redis that requires TLS with certificates of the authority, and has the
// ACL user parley.
func redisTLSServer(t *testing.T, authority *testkit.Authority, name string, args ...string) string {
	t.Helper()
	addrs, err := rig.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	cert, key := authority.Files(name)
	server := testkit.Redis(t, testkit.RedisArgs(append([]string{
		"--bind", host, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.CAFile,
	}, args...)...))
	if err := server.Client(t).ACLSetUser(t.Context(), "parley", "on", ">pw", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

func TestRedisTLSAndUser(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	cert, key := authority.Files("client")
	mutual := redisTLSServer(t, authority, "redis.example", "--tls-auth-clients", "yes")
	plain := redisTLSServer(t, authority, "redis.example", "--tls-auth-clients", "no")
	const on = "TLS_ENABLED=true"
	ca, user, password := "TLS_CA="+authority.CAFile, "USERNAME=parley", "PASSWORD=pw"
	for name, c := range map[string]struct {
		env  []string
		fail string // part of the error; empty for none
	}{
		"user":                        {env: []string{"ADDR=" + plain, on, ca, user, password, "DB=3"}},
		"a client certificate":        {env: []string{"ADDR=" + mutual, on, ca, user, password, "DB=3", "TLS_CERT=" + cert, "TLS_KEY=" + key}},
		"the servers' name":           {env: []string{"ADDR=" + plain, on, ca, user, password, "DB=3", "TLS_SERVER_NAME=redis.example"}},
		"another name":                {env: []string{"ADDR=" + plain, on, ca, user, password, "TLS_SERVER_NAME=other.example"}, fail: "other.example"},
		"no client certificate":       {env: []string{"ADDR=" + mutual, on, ca, user, password}, fail: "certificate required"},
		"an authority of the system":  {env: []string{"ADDR=" + plain, on, user, password}, fail: "certificate signed by unknown authority"},
		"no TLS":                      {env: []string{"ADDR=" + plain, user, password}, fail: "EOF"},
		"another password":            {env: []string{"ADDR=" + plain, on, ca, user, "PASSWORD=other"}, fail: "WRONGPASS"},
		"another user, same password": {env: []string{"ADDR=" + plain, on, ca, "USERNAME=other", password}, fail: "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redisOf(t, c.env...)
			info, err := client.Do(t.Context(), "CLIENT", "INFO").Text()
			switch {
			case c.fail != "":
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %q, %v, want an error with %q", info, err, c.fail)
				}
			case err != nil:
				t.Error(err)
			case !strings.Contains(info, " user=parley ") || !strings.Contains(info, " db=3 "):
				t.Errorf("connected as %s", info)
			}
		})
	}
}

// TestRedisTLSFilesAreReadAgain checks that the next connection uses the certificates of the client
// and of the trusted authority that have replaced those in the files.
func TestRedisTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	wrong, right := testkit.NewAuthority(t), testkit.NewAuthority(t)
	addr := redisTLSServer(t, right, "redis.example", "--tls-auth-clients", "yes")
	cert, key := wrong.Files("client")
	client := redisOf(t, "ADDR="+addr, "TLS_ENABLED=true", "TLS_CA="+wrong.CAFile, "TLS_CERT="+cert, "TLS_KEY="+key, "USERNAME=parley", "PASSWORD=pw")
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a server of another authority was trusted")
	}
	newCert, newKey := right.Files("client")
	for from, to := range map[string]string{right.CAFile: wrong.CAFile, newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, 10*time.Second, func() error { return client.Ping(t.Context()).Err() })
}

// TestRedisSentinel checks that a server with Sentinels connects to the master and, after a
// failover, to the new one.
func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	f := testkit.NewRedisFailover(t)
	env := func(user string) []string {
		return []string{
			"SENTINEL_ADDRS=127.0.0.1:1," + f.Sentinel, "SENTINEL_MASTER=" + testkit.SentinelMaster, "SENTINEL_USERNAME=" + user,
			"SENTINEL_PASSWORD=" + testkit.SentinelPassword, "DB=2",
		}
	}
	if err := redisOf(t, env("other")...).Ping(t.Context()).Err(); err == nil {
		t.Error("a Sentinel answered another user")
	}
	client := redisOf(t, env(testkit.SentinelUser)...)
	port := func() string {
		info, err := client.ConfigGet(t.Context(), "port").Result()
		if err != nil {
			return err.Error()
		}
		return "127.0.0.1:" + info["port"]
	}
	if got := port(); got != f.Addrs[0] {
		t.Errorf("connected to %s, want the master %s", got, f.Addrs[0])
	}
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Servers[0].Client(t).Do(t.Context(), "DBSIZE").Int(); n != 0 || err != nil {
		t.Errorf("database 0 has %d keys, %v: the key belongs into database 2", n, err)
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: f.Sentinel, Username: testkit.SentinelUser, Password: testkit.SentinelPassword})
	defer sentinel.Close()
	testkit.Eventually(t, 30*time.Second, func() error { // it does not know the replica at once
		return sentinel.Failover(t.Context(), testkit.SentinelMaster).Err()
	})
	testkit.Eventually(t, 30*time.Second, func() error {
		if got := port(); got != f.Addrs[1] {
			return fmt.Errorf("connected to %s, want the new master %s", got, f.Addrs[1])
		}
		return client.Set(t.Context(), "k", "w", 0).Err()
	})
}

func TestRedisClusterOfOneAddress(t *testing.T) {
	t.Parallel()
	client := redisOf(t, "CLUSTER_ADDRS="+testkit.RedisCluster(t)[1])
	for i := range 20 { // in slots of all masters
		if err := client.Set(t.Context(), fmt.Sprintf("engine-test-%d", i), "v", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := client.(*redis.ClusterClient); !ok {
		t.Errorf("the client is a %T", client)
	}
}

func TestRedisTimeouts(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{
		"PARLEY_REDIS_DIAL_TIMEOUT_MS=1", "PARLEY_REDIS_READ_TIMEOUT_MS=2", "PARLEY_REDIS_WRITE_TIMEOUT_MS=3", "PARLEY_REDIS_POOL_SIZE=40",
		"PARLEY_REDIS_MIN_IDLE_CONNS=5",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := redisConfig(&cfg.Redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got.DialTimeout != time.Millisecond || got.ReadTimeout != 2*time.Millisecond || got.WriteTimeout != 3*time.Millisecond ||
		got.PoolSize != 40 || got.MinIdleConns != 5 {
		t.Errorf("the client is %+v", got)
	}
}

func TestNATSTLS(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	pair := func(name string) tls.Certificate {
		cert, key := authority.Files(name)
		p, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	serve := func(auth tls.ClientAuthType) string {
		config := &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair("nats")}, ClientCAs: authority.Pool(), ClientAuth: auth,
		}
		return testkit.NATS(t, func(o *natsserver.Options) { o.TLSConfig, o.TLS = config, true }).URL()
	}
	mutual, plain := serve(tls.RequireAndVerifyClientCert), serve(tls.NoClientCert)
	cert, key := authority.Files("client")
	ca := "PARLEY_NATS_TLS_CA=" + authority.CAFile
	for name, c := range map[string]struct {
		url  string
		env  []string
		fail bool
	}{
		"authority":             {url: plain, env: []string{ca}},
		"a client certificate":  {url: mutual, env: []string{ca, "PARLEY_NATS_TLS_CERT=" + cert, "PARLEY_NATS_TLS_KEY=" + key}},
		"no client certificate": {url: mutual, env: []string{ca}, fail: true},
		"no authority":          {url: plain, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := config.Load("", append(c.env, "PARLEY_NATS_URL="+c.url))
			if err != nil {
				t.Fatal(err)
			}
			bus := natsbus.Config{URL: cfg.NATS.URL.Reveal(), Shards: 1, Logger: slog.New(slog.DiscardHandler), ConnectWait: 5 * time.Second}
			if c.fail {
				bus.ConnectWait = 500 * time.Millisecond
			}
			if err := natsTLS(&bus, &cfg.NATS.TLS, bus.Logger); err != nil {
				t.Fatal(err)
			}
			b, err := natsbus.Connect(t.Context(), bus)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if err := b.Ping(t.Context()); (err != nil) != c.fail {
				t.Errorf("ping: %v", err)
			}
		})
	}
}

func TestEnginesTLSWantsItsFiles(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	if err := redisTLS(new(redisstore.ClientConfig), &config.RedisTLS{Enabled: true, CA: "/none"}, log); err == nil || !strings.Contains(err.Error(), "redis.tls: ") {
		t.Errorf("Redis: %v", err)
	}
	if err := natsTLS(new(natsbus.Config), &config.NATSTLS{Cert: "/none", Key: "/none"}, log); err == nil || !strings.Contains(err.Error(), "nats.tls: ") {
		t.Errorf("NATS: %v", err)
	}
}
