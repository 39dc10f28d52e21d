package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/servertest"
)

// bench is a Parley server, a Redis for the index, and a directory of logs.
type bench struct {
	t     *testing.T
	ctx   context.Context
	flags []string
	store *redis.Client
	dir   string
}

func newBench(t *testing.T, lines int) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	dir, err := rig.TempDir("wordindex")
	if err != nil {
		t.Fatal(err)
	}
	server, err := rig.StartRedis(ctx, rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := servertest.Dev(t)
	b := &bench{
		t: t, ctx: ctx, flags: []string{"--addr", s.URL, "--token", s.Token, "--redis", server.Addr()}, store: server.Client(), dir: t.TempDir(),
	}
	t.Cleanup(func() { _ = b.store.Close() })
	b.write("2005-02-08.raw.txt", lines)
	return b
}

// write writes a log of seven nicks with the given number of messages.
func (b *bench) write(name string, lines int) {
	b.t.Helper()
	var log strings.Builder
	for i := range lines {
		fmt.Fprintf(&log, "[09:%02d] <nick %d> Line %d, said by %d: again and again!\n=== a notice\n", i/60%60, i%7, i, i%7)
	}
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(log.String()), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// try runs a command of wordindex to its end and returns its output.
func (b *bench) try(args ...string) (string, error) {
	var out bytes.Buffer
	err := execute(b.ctx, append(b.flags, args...), &out)
	return out.String(), err
}

// do runs a command of wordindex and returns its output. It fails the test if the command fails.
func (b *bench) do(args ...string) string {
	b.t.Helper()
	out, err := b.try(args...)
	if err != nil {
		b.t.Fatalf("%q: %v", args, err)
	}
	return out
}

// work runs a worker until stop is called, or the test ends.
func (b *bench) work(args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() { ended <- execute(ctx, append(append(b.flags, "work"), args...), &out) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("work: %v", err)
		}
	}
	b.t.Cleanup(stop)
	return stop
}

// verified repeats the command verify until all jobs are settled, and returns its output. It fails
// the test if verify reports any other violation.
func (b *bench) verified(args ...string) string {
	b.t.Helper()
	for {
		out, err := b.try(append([]string{"verify", b.dir}, args...)...)
		if err == nil {
			return out
		}
		if b.ctx.Err() != nil || !strings.Contains(err.Error(), "not all jobs are done with") {
			b.t.Fatalf("verify: %v\n%s", err, out)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// TestIndexAndFix runs all commands: workers, produce twice, verify, then workers that handle
// poison, and replay. The index must be correct before and after the replay.
func TestIndexAndFix(t *testing.T) {
	t.Parallel()
	const lines = 700
	b := newBench(t, lines)
	first, second := b.work(), b.work("--concurrency", "2", "--takes", "1ms")
	if out := b.do("produce", b.dir); !strings.Contains(out, fmt.Sprintf("%d jobs produced", lines)) || !strings.Contains(out, "; 0 were there") {
		t.Errorf("the first producer says %q", out)
	}
	if out := b.do("produce", "--rate", "100000", b.dir); !strings.Contains(out, fmt.Sprintf("; %d were there already", lines)) {
		t.Errorf("the second producer says %q", out)
	}
	out := b.verified()
	if !strings.Contains(out, "7 nicks, with up to 100 lines") || strings.Contains(out, "dead letters: 0") || strings.Contains(out, " 0 delayed") {
		t.Errorf("verify says %q", out)
	}
	if _, err := b.try("verify", "--fixed", b.dir); err == nil {
		t.Errorf("poison that is not fixed passes for fixed")
	}
	first()
	second()
	b.work("--fixed")
	if out := b.do("replay"); strings.HasPrefix(out, "0 ") {
		t.Errorf("replay says %q", out)
	}
	if out := b.verified("--fixed"); !strings.Contains(out, "dead letters: 0") {
		t.Errorf("verify says %q", out)
	}
	if out := b.do("replay"); !strings.HasPrefix(out, "0 ") {
		t.Errorf("a second replay says %q", out)
	}
	if _, err := b.try("verify", b.dir); err == nil {
		t.Errorf("a topic without dead letters passes for one with poison")
	}
}

// TestVerifyReportsErrors spoils one key of the index at a time. The command verify must report
// each.
func TestVerifyReportsErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, 420)
	b.work()
	b.do("produce", b.dir)
	b.verified()
	jobs, err := readJobs(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var plain, failing, dead *job
	for i := range jobs {
		switch one := &jobs[i]; {
		case one.fault == twice:
			failing = one
		case one.fault == poison:
			dead = one
		case one.delay == 0:
			plain = one
		}
	}
	indexed, seen := newIndex(b.store, "lines", indexers), newIndex(b.store, "lines", witness)
	for name, c := range map[string]struct {
		spoil string // a command of Redis
		want  string
	}{
		"an effect twice":     {"ZINCRBY " + indexed.linesOf("again") + " 2 " + plain.line, `"again" is in the lines`},
		"a word too many":     {"ZADD " + indexed.words() + " 1 never", `"never" is in the index`},
		"a word too often":    {"ZINCRBY " + indexed.words() + " 1 again", `"again" was said`},
		"a word too few":      {"DEL " + indexed.linesOf("said"), `"said" is in the lines map[] `},
		"a line twice":        {"HSET " + indexed.done() + " 0-0-1 " + plain.line, "has two messages"},
		"a line of nobody":    {"HSET " + indexed.done() + " 0-0-1 other:1", "not in the files"},
		"a line too few":      {"DEL " + indexed.done(), "is indexed: false, want true"},
		"poison in the index": {"HSET " + indexed.done() + " 0-0-1 " + dead.line, "is indexed: true, want false"},
		"no failures":         {"HDEL " + indexed.failures() + " " + failing.line, "failed 0 times"},
		"too early":           {"HINCRBY " + indexed.tally() + " early 1", "before they were due"},
		"another order":       {"LMOVE " + indexed.order(plain.nick) + " " + indexed.order(plain.nick) + " LEFT RIGHT", "as it was indexed: line 1"},
		"a line out of order": {"LMOVE " + seen.order(plain.nick) + " " + seen.order(plain.nick) + " LEFT RIGHT", "as the topic has it"},
		"an order too short":  {"LPOP " + indexed.order(plain.nick), "as it was indexed"},
	} {
		var args []any
		for arg := range strings.FieldsSeq(c.spoil) {
			args = append(args, arg)
		}
		key := strings.Fields(c.spoil)[1]
		saved := b.store.Dump(b.ctx, key).Val()
		if err := b.store.Do(b.ctx, args...).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.try("verify", b.dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: verify says %v, want %q", name, err, c.want)
		}
		if err := b.store.RestoreReplace(b.ctx, key, 0, saved).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	b.verified()
	b.write("2005-02-09.raw.txt", 1)
	if _, err := b.try("verify", b.dir); err == nil || !strings.Contains(err.Error(), "420 jobs were produced, of 421 lines") {
		t.Errorf("with a line more, verify says %v", err)
	}
	if err := os.Remove(filepath.Join(b.dir, "2005-02-09.raw.txt")); err != nil {
		t.Fatal(err)
	}
	b.do("replay")
	if _, err := b.try("verify", b.dir); err == nil {
		t.Errorf("dead letters that were replayed pass for kept")
	}
}

// TestRightOrder checks that rightOrder accepts valid orders of a nick's jobs and refuses invalid
// ones. In "a10", a is the job and 10 the time when it appeared or was due.
func TestRightOrder(t *testing.T) {
	t.Parallel()
	direct := func(line string) *job { return &job{line: line, nick: "ann"} }
	late := func(line string) *job { return &job{line: line, nick: "ann", delay: time.Second} }
	said := []*job{direct("a"), late("x"), direct("b"), late("y"), direct("c")}
	j := &judge{jobs: map[string]*job{"o": {line: "o", nick: "bob"}}}
	for _, one := range said {
		j.jobs[one.line] = one
	}
	for order, want := range map[string]string{
		"a10 b20 c30 x40 y50":     "",
		"a10 y15 b20 x25 c30":     "", // y had the shorter delay
		"a10 b20 x15 y15 c30":     "", // x and y appeared a little later than they were due
		"a10 b20 x15 y25 c20":     "c was said 5 ms before",
		"a10 b20 y25 x24 c30":     "x was due 1 ms before",
		"b10 a20 x25 y26 c30":     "a was said before",
		"a10 b20 x25 y26":         "4 lines, want 5",
		"a10 b20 x25 y26 o30":     "not of this nick",
		"a10 b20 x25 x26 c30":     "not of this nick, or was there before",
		"a10 b20 c30 x40 unknown": "not of this nick",
	} {
		var seen []indexedLine
		for i, word := range strings.Fields(order) {
			at := int64(100 + i)
			if len(word) == 3 {
				_, err := fmt.Sscanf(word[1:], "%d", &at)
				if err != nil {
					t.Fatal(err)
				}
				word = word[:1]
			}
			seen = append(seen, indexedLine{line: word, at: at})
		}
		err := j.rightOrder(seen, said)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", order, err, want)
		}
	}
}

// TestJobs checks the proportions of delayed and failing jobs, that a line always gets the same
// job, and how words are counted.
func TestJobs(t *testing.T) {
	t.Parallel()
	const n = 20000
	delayed, faults := 0, make(map[fault]int)
	for i := range n {
		line := fmt.Sprint("log:", i)
		one := newJob(line, "ann", "hello")
		if one != newJob(line, "ann", "hello") {
			t.Fatalf("%s is another job the second time", line)
		}
		if one.delay > 0 {
			delayed++
		}
		if one.delay < 0 || one.delay > maxDelay {
			t.Errorf("%s waits %s", line, one.delay)
		}
		faults[one.fault]++
	}
	near := func(what string, got, want int) {
		if got < want*8/10 || got > want*12/10 {
			t.Errorf("%d of %d jobs %s, want about %d", got, n, what, want)
		}
	}
	near("are delayed", delayed, n/10)
	near("fail twice", faults[twice], n/20)
	near("are poison", faults[poison], n/200)
	for text, want := range map[string]map[string]int{
		"":                              {},
		"To be, or not to be!":          {"to": 2, "be": 2, "or": 1, "not": 1},
		"Zoë's apt-get \uFFFD 2.6 ÄÖÜ":  {"zoë": 1, "s": 1, "apt": 1, "get": 1, "2": 1, "6": 1, "äöü": 1},
		"http://a.b/c?d=e&d=e ...:-) _": {"http": 1, "a": 1, "b": 1, "c": 1, "d": 2, "e": 2},
	} {
		if diff := cmp.Diff(want, wordsOf(text)); diff != "" {
			t.Errorf("the words of %q (-want +got):\n%s", text, diff)
		}
	}
}
