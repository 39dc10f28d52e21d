package redisstore

import (
	"errors"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

var all = []*script{cacheAppend, cacheNow, cacheReplace}

var (
	headerArgs = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)\[(\d+)(\.\.\.)?\]`)
	usedArgs   = regexp.MustCompile(`\b(KEYS|ARGV)\b(\[(\d+)\])?`)
)

// TestScriptsMatchTheirHeaders compares what a script's header promises with what its body takes and with what Go says.
func TestScriptsMatchTheirHeaders(t *testing.T) {
	t.Parallel()
	for _, s := range all {
		source, err := os.ReadFile("lua/" + s.name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		var header, body strings.Builder
		for line := range strings.Lines(string(source)) {
			if strings.HasPrefix(line, "--") {
				header.WriteString(line)
			} else {
				body.WriteString(line)
			}
		}
		documented, rest := map[string]int{}, map[string]bool{}
		for _, m := range headerArgs.FindAllStringSubmatch(header.String(), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			if n != documented[m[1]]+1 {
				t.Errorf("%s: the header goes from %s[%d] to [%d]", s.name, m[1], documented[m[1]], n)
			}
			documented[m[1]], rest[m[1]] = n, m[3] != ""
		}
		used, usesRest := map[string]int{}, map[string]bool{}
		for _, m := range usedArgs.FindAllStringSubmatch(body.String(), -1) {
			if m[3] == "" {
				usesRest[m[1]] = true
				continue
			}
			n, err := strconv.Atoi(m[3])
			if err != nil {
				t.Fatal(err)
			}
			used[m[1]] = max(used[m[1]], n)
		}
		for _, name := range []string{"KEYS", "ARGV"} {
			want := documented[name]
			if rest[name] {
				want--
			}
			if used[name] != want || usesRest[name] != rest[name] {
				t.Errorf("%s: the header has %s up to %d (rest: %t), the body takes up to %d (rest: %t)",
					s.name, name, want, rest[name], used[name], usesRest[name])
			}
		}
		if documented["KEYS"] != s.numKeys {
			t.Errorf("%s: the header has %d keys, Go says %d", s.name, documented["KEYS"], s.numKeys)
		}
		if !strings.Contains(header.String(), "\n-- RETURNS ") {
			t.Errorf("%s: the header does not say what it returns", s.name)
		}
		for i, line := range strings.Split(strings.TrimSpace(body.String()), "\n") {
			if i > 0 && usedArgs.MatchString(line) {
				t.Errorf("%s takes arguments below its first line: %s", s.name, line)
			}
		}
	}
}

func TestNoScriptIsWithoutAUse(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"lib_cache.lua": true}
	for _, s := range all {
		known[s.name+".lua"] = true
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("lua/%s is used by nothing", f.Name())
		}
	}
	if len(files) != len(known) {
		t.Errorf("%d files, %d known", len(files), len(known))
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	if got := (keys{}).messages("AB"); got != "msg_cache:AB" {
		t.Error(got)
	}
	if got := (keys{"eu:"}).messages("AB"); got != "eu:msg_cache:AB" {
		t.Error(got)
	}
}

// TestClusterTakesEverything runs every call on a server in cluster mode, which refuses keys of two slots.
func TestClusterTakesEverything(t *testing.T) {
	t.Parallel()
	port, busPort := freePort(t), freePort(t)
	server := testkit.Redis(t, testkit.RedisArgs("--cluster-enabled", "yes", "--bind", "127.0.0.1",
		"--port", strconv.Itoa(port), "--cluster-port", strconv.Itoa(busPort)))
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
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	client, err := NewClient(ClientConfig{Addrs: []string{addr, addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, ok := client.(*redis.ClusterClient); !ok {
		t.Fatalf("the client is a %T", client)
	}
	cache, err := NewCache(client, CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var runs []feed.Run
	for i := range 20 {
		id := "c" + strconv.Itoa(i)
		replace(t, cache, id, entries(1, 3))
		runs = append(runs, feed.Run{ChannelID: id, Epoch: epoch, Entries: append(inserts(4, 5), change(6, 2, message.KindEdit, "x"))})
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
	page, err := cache.Page(t.Context(), "c3", message.Range{Limit: 10})
	if err != nil || len(page.Entries) != 6 {
		t.Errorf("page %+v, %v", page, err)
	}
	if err := cache.Drop(t.Context(), "c3"); err != nil {
		t.Error(err)
	}
	if err := Ping(t.Context(), client); err != nil {
		t.Error(err)
	}
	if err := CheckSafe(t.Context(), client, true); err != nil {
		t.Error(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
