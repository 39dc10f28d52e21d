package server_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// pair is a node in this process, and one that is a process of its own, which can be halted, behind
// proxies to its engines.
type pair struct {
	t     *testing.T
	here  *servertest.Server
	links links
	env   []string
	url   string
	cmd   *exec.Cmd
	done  chan error
}

const pairSecret = "0123456789abcdef0123456789abcdef"

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t}
	addrs, err := rig.FreeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	p.here = servertest.Serve(t, servertest.With(func(c *config.Config) {
		c.Auth.HS256Secret = pairSecret
		c.Mongo.URI = config.SecretURL("mongodb://" + testkit.MongoAddr(t) + "/?directConnection=true")
		other := *c
		p.links.connect(t, &other, c.NATS.URL.Reveal(), c.Redis.Addr)
		p.env = []string{
			"PARLEY_LISTEN=" + addrs[0], "PARLEY_OPS_LISTEN=" + addrs[1], "PARLEY_AUTH_HS256_SECRET=" + pairSecret,
			"PARLEY_MONGO_URI=" + other.Mongo.URI.Reveal(), "PARLEY_MONGO_DATABASE=" + c.Mongo.Database,
			"PARLEY_REDIS_ADDR=" + other.Redis.Addr, "PARLEY_REDIS_ALLOW_VOLATILE=true",
			"PARLEY_NATS_URL=" + other.NATS.URL.Reveal(), fmt.Sprint("PARLEY_SHARDS=", c.Shards),
			"PARLEY_LIMITS_REQUESTS_PER_SECOND=100000", "PARLEY_LIMITS_REQUEST_BURST=100000",
		}
	}))
	p.url = "http://" + addrs[0]
	t.Cleanup(p.end)
	p.start()
	p.ready()
	return p
}

// start starts the process.
func (p *pair) start() {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(p.t.TempDir(), "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(path, "serve")
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PARLEY_") })
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = slices.Concat(inherited, p.env), log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	p.done = done
	go func(cmd *exec.Cmd) {
		done <- cmd.Wait()
		_ = log.Close()
	}(p.cmd)
	p.t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); p.t.Failed() {
			p.t.Logf("the process: %s", text)
		}
	})
}

// ready waits until the process accepts a token.
func (p *pair) ready() {
	p.t.Helper()
	token := login(p.here, "waiting", "waiting")
	testkit.Eventually(p.t, 60*time.Second, func() error { return p.call(token) })
}

func (p *pair) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end kills the process and waits for its end.
func (p *pair) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
}

// call makes a call that needs no engine on the process, on a new connection.
func (p *pair) call(token string) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	client := parleyv1connect.NewServerServiceClient(servertest.HTTPClient(p.t, token), p.url)
	return callErr(client.GetServerInfo(ctx, &parleyv1.GetServerInfoRequest{}))
}

// signOut signs a login out on the node in this process.
func (p *pair) signOut(ssid string) {
	p.t.Helper()
	if err := callErr(p.here.Presence(login(p.here, "ann", ssid)).SignOut(p.t.Context(), &parleyv1.SignOutRequest{})); err != nil {
		p.t.Fatalf("sign out: %v", err)
	}
}

// refuses reports an error unless the process refuses every call with the tokens of a login for a
// while, and refuses them as revoked in the end.
func (p *pair) refuses(when, ssid string) {
	p.t.Helper()
	old, refreshed := login(p.here, "ann", ssid), p.here.MintAs(principal("ann", ssid), 2*time.Hour)
	for began := time.Now(); ; {
		revoked := true
		for _, token := range []string{old, refreshed} {
			err := p.call(token)
			if err == nil {
				p.t.Errorf("%s: a revoked token is admitted after %v", when, time.Since(began))
				return
			}
			reason, _ := reasonOf(err)
			revoked = revoked && reason == tokenRevoked
		}
		if late := time.Since(began); late > 1500*time.Millisecond && revoked {
			return
		} else if late > 20*time.Second {
			p.t.Errorf("%s: it is not refused as revoked", when)
			return
		}
	}
}

// TestStoppedNode checks that a node that was halted while a login was signed out on another one
// accepts no token of it once it goes on. Its stream ends within a second. All engines are there at
// that time, or the store, NATS, or both are away.
func TestStoppedNode(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i, away := range []enginesState{{}, {mongo: down}, {nats: down}, {nats: down, mongo: down}} {
		ssid := fmt.Sprint("phone-", i)
		client := parleyv1connect.NewMessageServiceClient(servertest.HTTPClient(t, login(p.here, "ann", ssid)), p.url)
		p.ready()
		stream, err := client.Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
		if err != nil || !stream.Receive() {
			t.Fatalf("%v: no stream: %v, %v", away, err, stream.Err())
		}
		p.signal(syscall.SIGSTOP)
		p.links.set(away, false) // what NATS announces now is lost, if it is away
		p.signOut(ssid)
		<-time.After(1500 * time.Millisecond) // halted for longer than it trusts what it knows
		p.signal(syscall.SIGCONT)
		woken := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			for stream.Receive() {
			}
			ended <- time.Since(woken)
		}()
		p.refuses(away.String(), ssid)
		took := <-ended
		if reason, _ := reasonOf(stream.Err()); reason != tokenRevoked || took > time.Second+slowMachine {
			t.Errorf("%v: the stream ended %v after the node went on: %v", away, took, stream.Err())
		}
		t.Logf("%v: the stream ended %v after the node went on", away, took.Round(time.Millisecond))
		p.links.set(enginesState{}, false)
	}
}

// TestRestartWithoutStore checks that a node that starts while the store is away accepts no revoked
// token, neither then nor once the store is back.
func TestRestartWithoutStore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.signOut("phone")
	p.end()
	p.links.set(enginesState{mongo: down}, false)
	p.start()
	token := login(p.here, "ann", "phone")
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		if p.call(token) == nil {
			t.Fatal("a node without a store admits a revoked token")
		}
		select {
		case err := <-p.done: // a supervisor starts it again
			p.done <- err
			p.cmd = nil
			p.start()
		case <-time.After(50 * time.Millisecond):
		}
	}
	p.links.set(enginesState{}, false)
	testkit.Eventually(t, 60*time.Second, func() error {
		err := p.call(token)
		if reason, _ := reasonOf(err); reason == tokenRevoked {
			return nil
		}
		if err == nil {
			t.Fatal("admitted")
		}
		select {
		case err := <-p.done:
			p.done <- err
			p.start()
		default:
		}
		return err
	})
	p.refuses("with the store", "phone")
	p.ready()
}

// TestRestoredRedis checks that an older copy of the revocations in Redis, with the declaration
// that it is complete, brings no token back to life: neither while the store answers, nor when it
// goes away after the keeper had a second.
func TestRestoredRedis(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	redis := p.here.Redis.Client(t)
	p.signOut("earlier") // so that there is something to restore
	testkit.Eventually(t, 10*time.Second, func() error {
		return redis.Get(t.Context(), "users:ssid:.complete").Err()
	})
	saved := make(map[string]string)
	for _, key := range redis.Keys(t.Context(), "users:*").Val() {
		saved[key] = redis.Dump(t.Context(), key).Val()
	}
	if len(saved) < 2 || saved["users:ssid:.complete"] == "" {
		t.Fatalf("saved %v", strings.Join(redis.Keys(t.Context(), "*").Val(), " "))
	}
	restore := func() {
		t.Helper()
		if err := redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for key, value := range saved {
			if err := redis.RestoreReplace(t.Context(), key, 5*time.Second, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.signOut("phone")
	p.refuses("before", "phone")
	restore()
	p.refuses("with the store", "phone")
	restore()
	p.links.set(enginesState{nats: down, mongo: down}, false)
	p.refuses("without the store", "phone") // it is in memory
	p.links.set(enginesState{}, false)
	p.ready()
	// A node that knows nothing of the revocation: it is cut off before, and asks Redis.
	p.links.set(enginesState{nats: down, mongo: down}, false)
	p.signOut("tablet")
	restore()
	// The keeper copies it again, or the declaration expires.
	testkit.Eventually(t, 6*time.Second+slowMachine, func() error {
		if reason, _ := reasonOf(p.call(login(p.here, "ann", "tablet"))); reason != tokenRevoked {
			return fmt.Errorf("admitted, or not known: %v", reason)
		}
		return nil
	})
	p.refuses("on a node that only has Redis", "tablet")
}
