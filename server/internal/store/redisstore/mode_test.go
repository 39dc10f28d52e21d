package redisstore

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestCheckSafe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args          []string
		allowVolatile bool
		want          string // part of the error; empty for none
	}{
		"append-only":          {args: []string{"--appendonly", "yes"}},
		"snapshots":            {args: []string{"--save", "900 1"}},
		"volatile":             {want: "set appendonly to yes"},
		"volatile, allowed":    {allowVolatile: true},
		"evicting":             {args: []string{"--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"}, want: "maxmemory-policy"},
		"evicting is no loss":  {args: []string{"--maxmemory-policy", "volatile-ttl"}, allowVolatile: true, want: "maxmemory-policy"},
		"CONFIG is forbidden":  {args: []string{"--rename-command", "CONFIG", ""}, want: "forbidden"},
		"only AOF can be seen": {args: []string{"--appendonly", "yes", "--rename-command", "CONFIG", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := NewClient(ClientConfig{Addrs: []string{testkit.Redis(t, testkit.RedisArgs(c.args...)).Addr()}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			err = CheckSafe(t.Context(), client, c.allowVolatile)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestNewClientSignsIn(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	admin := server.Client(t)
	if err := admin.ACLSetUser(t.Context(), "parley", "on", ">pw", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(ClientConfig{Addrs: []string{server.Addr()}, Username: "parley", Password: "pw", DB: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if user := client.Do(t.Context(), "acl", "whoami").Val(); user != "parley" {
		t.Errorf("signed in as %v", user)
	}
	if n := admin.DBSize(t.Context()).Val(); n != 0 {
		t.Error("the database's number was not used")
	}
}

// TestClientDoesNotRetry checks that a client sends a command once even if the server closes the
// connection without an answer.
func TestClientDoesNotRetry(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan string, 64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerThenHangUp(conn, taken)
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	client, err := NewClient(ClientConfig{Addrs: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("no error")
	}
	if n := len(taken); n != 1 {
		t.Errorf("the command was sent %d times", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("no error")
	}
}

// answerThenHangUp refuses the greeting, which every client tolerates, and closes the connection on
// INCR or PING. It reports each INCR to taken.
func answerThenHangUp(conn net.Conn, taken chan<- string) {
	defer conn.Close()
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		text := strings.ToLower(string(buffer[:n]))
		if strings.Contains(text, "incr") {
			taken <- text
			return
		}
		if strings.Contains(text, "ping") {
			return
		}
		for range strings.Count(text, "*") {
			if _, err := conn.Write([]byte("-ERR unknown command\r\n")); err != nil {
				return
			}
		}
	}
}

func TestNewClientRequiresAnAddress(t *testing.T) {
	t.Parallel()
	client, err := NewClient(ClientConfig{})
	if err == nil {
		_ = client.Close()
		t.Error("a client without an address was made")
	}
}

// TestScriptsRunOnTheInProcessRedis checks that the cache works on the in-process Redis, which only
// `parleyd dev` uses, on a machine without redis-server.
func TestScriptsRunOnTheInProcessRedis(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		client := testkit.InProcessRedisClient(t)
		cache, err := l.new(client, CacheConfig{Keep: 4})
		if err != nil {
			t.Fatal(err)
		}
		replace(t, cache, room, logOf(messages(1, 3)...))
		done, err := cache.Append(t.Context(), []feed.ChannelChanges{{
			ChannelID: room, Epoch: epoch, Changes: []feed.CacheChange{insert(4), change(5, 3, message.KindRecall, ""), insert(7)},
		}})
		if err != nil || done[0] != 2 {
			t.Fatalf("%v done, %v", done, err)
		}
		page, err := cache.Page(t.Context(), room, message.Range{After: 2, Limit: 3})
		if err != nil || len(page.Events) != 3 || page.Oldest != 1 || page.Newest != 5 ||
			page.Events[2].Kind != message.KindRecall || page.Events[2].Seq != 5 || page.Events[0].Message.Status != message.StatusRecalled {
			t.Errorf("page %+v, %v", page, err)
		}
		page, err = cache.Page(t.Context(), room, message.Range{Desc: true, Limit: 2, MessagesOnly: true})
		if err != nil || len(page.Events) != 2 || page.Events[0].Seq != 4 {
			t.Errorf("page downwards %+v, %v", page, err)
		}
		if ttl := client.TTL(t.Context(), l.key(room)).Val(); ttl > l.ttl || ttl < l.ttl-time.Minute {
			t.Errorf("expires in %s", ttl)
		}
	})
}
