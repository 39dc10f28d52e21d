package redisstore

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
	"github.com/parleyhq/parley/server/internal/store/redisscript/scripttest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

var all = []*redisscript.Script{cacheAppend, cacheNow, cachePage, cacheReplace, listAppend, listPage, listReplace}

// TestScriptsMatchTheirHeaders compares each script's header with its body and with the Go code.
func TestScriptsMatchTheirHeaders(t *testing.T) {
	t.Parallel()
	scripttest.MatchHeaders(t, "lua", all)
}

func TestEveryScriptIsUsed(t *testing.T) {
	t.Parallel()
	scripttest.NoneUnused(t, "lua", all, "lib_state", "lib_cache", "lib_list")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	if got := (keys{}).messages("AB"); got != "msg_cache:AB" {
		t.Error(got)
	}
	if got := (keys{"eu:"}).messages("AB"); got != "eu:msg_cache:AB" {
		t.Error(got)
	}
	if got := (keys{}).session("~AB"); got != "chat:session:AB:messages" {
		t.Error(got)
	}
	if got := (keys{"eu:"}).session("~AB"); got != "eu:chat:session:AB:messages" {
		t.Error(got)
	}
}

// TestScriptsRunOnACluster checks that every call works on a server in cluster mode, which refuses
// a command whose keys are in different slots.
func TestScriptsRunOnACluster(t *testing.T) {
	t.Parallel()
	addrs, err := rig.FreeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	addr := addrs[0]
	server := testkit.Redis(t, testkit.RedisArgs("--cluster-enabled", "yes", "--bind", "127.0.0.1",
		"--port", port(t, addr), "--cluster-port", port(t, addrs[1])))
	single := server.Client(t)
	if err := single.ClusterAddSlotsRange(t.Context(), 0, 16_383).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		if info := single.ClusterInfo(t.Context()).Val(); !strings.Contains(info, "cluster_state:ok") {
			return errors.New(info)
		}
		return nil
	})
	client, err := NewClient(ClientConfig{Addrs: []string{addr, addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, ok := client.(*redis.ClusterClient); !ok {
		t.Fatalf("the client is a %T", client)
	}
	channels, err := NewCache(client, CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := NewSessionCache(client, CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cache := Router{Channels: channels, Sessions: sessions}
	var runs []feed.ChannelChanges
	for i := range 20 {
		id := []string{"c", "~c"}[i%2] + strconv.Itoa(i)
		replace(t, cache, id, logOf(messages(1, 3)...))
		runs = append(runs, feed.ChannelChanges{ChannelID: id, Epoch: epoch, Changes: append(inserts(4, 5), change(6, 2, message.KindEdit, "x"))})
	}
	if err := single.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	done, err := cache.Append(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range done {
		if n != 3 {
			t.Errorf("channel %d: %d done", i, n)
		}
	}
	for id, key := range map[string]string{"c2": "msg_cache:c2", "~c3": "chat:session:c3:messages"} {
		page, err := cache.Page(t.Context(), id, message.Range{Limit: 10})
		if err != nil || len(page.Events) != 6 {
			t.Errorf("%s: page %+v, %v", id, page, err)
		}
		if err := cache.Drop(t.Context(), id); err != nil {
			t.Error(err)
		}
		if single.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is still there", key)
		}
	}
	if err := CheckSafe(t.Context(), client, true); err != nil {
		t.Error(err)
	}
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
