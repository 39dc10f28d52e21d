package cli_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/clients/cli"
	"github.com/parleyhq/parley/server/servertest"
)

// queues is a real server, and the command line against it.
type queues struct {
	t   *testing.T
	s   *servertest.Server
	env map[string]string
}

func newQueues(t *testing.T) *queues {
	t.Helper()
	s := servertest.Dev(t)
	return &queues{t: t, s: s, env: map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.Token}}
}

// run runs `parley queue` with arguments.
func (q *queues) run(args ...string) outcome { return q.pipe("", args...) }

// ok is like run, and fails the test unless the exit code is 0.
func (q *queues) ok(args ...string) outcome {
	q.t.Helper()
	return q.run(args...).wantOK(q.t)
}

// pipe is like run, with stdin as the standard input.
func (q *queues) pipe(stdin string, args ...string) outcome {
	q.t.Helper()
	return runWith(q.t, q.env, stdin, append([]string{"queue"}, args...)...)
}

// fails runs a command that must fail with the exit code and an error with each of the texts.
func (q *queues) fails(code int, args []string, texts ...string) {
	q.t.Helper()
	got := q.run(args...)
	if got.code != code {
		q.t.Errorf("%q: exit code %d, want %d; stderr: %s", args, got.code, code, got.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(got.stderr, text) {
			q.t.Errorf("%q: stderr %q does not say %q", args, got.stderr, text)
		}
	}
}

// object runs a command with --json and returns the only object that it wrote.
func (q *queues) object(args ...string) map[string]any {
	q.t.Helper()
	objects := q.ok(append(args, "--json")...).objects(q.t)
	if len(objects) != 1 {
		q.t.Fatalf("%q wrote %d objects", args, len(objects))
	}
	return objects[0]
}

// group returns the stats of a topic's only group.
func (q *queues) group(topic string) map[string]any {
	q.t.Helper()
	groups, _ := q.object("stats", topic)["groups"].([]any)
	if len(groups) != 1 {
		q.t.Fatalf("groups %v", groups)
	}
	return groups[0].(map[string]any)
}

// running is a running command.
type running struct {
	stdout, stderr buffer
	interrupt      context.CancelFunc
	done           chan int
}

// start runs `parley queue` until it ends or is interrupted.
func (q *queues) start(args ...string) *running {
	q.t.Helper()
	r := &running{done: make(chan int, 1)}
	q.startTo(r, strings.NewReader(""), &r.stdout, args...)
	return r
}

func (q *queues) startTo(r *running, stdin io.Reader, stdout io.Writer, args ...string) {
	ctx, cancel := context.WithCancel(testContext(q.t))
	r.interrupt = cancel
	go func() {
		defer cancel()
		r.done <- cli.Run(ctx, append([]string{"queue"}, args...), stdin, stdout, &r.stderr, func(k string) string { return q.env[k] })
	}()
}

// wantEnd waits until the command has ended with the code.
func (r *running) wantEnd(t *testing.T, code int) {
	t.Helper()
	if got := <-r.done; got != code {
		t.Errorf("exit code %d, want %d; stderr:\n%s", got, code, r.stderr.String())
	}
}

// TestQueueTopics checks that the topic commands create topics with every setting, and update,
// show, list, pause, resume and delete them.
func TestQueueTopics(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	made := q.object("create", "jobs", "--group", "work", "--group", "audit", "--partitions", "2", "--partitioner", "consistent-hash",
		"--strict-order", "--retention", "7d", "--retention-messages", "100", "--dead-letter-retention", "1.5d", "--max-length", "1000",
		"--drop-oldest", "--max-attempts", "3", "--min-backoff", "10ms", "--max-backoff", "1m30s", "--non-retryable", "bad,exit-65",
		"--idempotency-window", "1h")
	want := map[string]any{
		"topic": "jobs", "partitions": 2.0, "partitioner": "consistent-hash", "strict_order": true, "groups": []any{"work", "audit"},
		"retention_ms": 604800000.0, "retention_messages": 100.0, "dead_letter_retention_ms": 129600000.0, "max_length": 1000.0,
		"drop_oldest": true, "max_attempts": 3.0, "min_backoff_ms": 10.0, "max_backoff_ms": 90000.0,
		"non_retryable": []any{"bad", "exit-65"}, "idempotency_window_ms": 3600000.0, "produce_paused": false, "consume_paused": false,
		"create_time": made["create_time"],
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("create says (-want +got):\n%s", diff)
	}
	q.fails(1, []string{"create", "jobs"}, "TOPIC_EXISTS")
	want["groups"], want["max_attempts"], want["drop_oldest"] = []any{"audit", "work"}, 5.0, false
	want["non_retryable"] = []any{}
	changed := q.object("update", "jobs", "--max-attempts", "5", "--no-drop-oldest", "--non-retryable", "")
	q.fails(1, []string{"update", "jobs", "--partitions", "4"}, "strict order")
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("update says (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, q.object("get", "jobs")); diff != "" {
		t.Errorf("get says (-want +got):\n%s", diff)
	}
	text := q.ok("get", "jobs").stdout
	for _, line := range []string{"retention              7d", "max-backoff            1m30s", "non-retryable          none", "groups                 audit, work"} {
		if !strings.Contains(text, "  "+line+"\n") {
			t.Errorf("get, as text has no %q:\n%s", line, text)
		}
	}
	if got := q.ok("create", "plain").stdout; got != "plain is created: 8 partitions, without groups\n" {
		t.Errorf("create says %q", got)
	}
	if got := q.object("get", "plain"); got["partitioner"] != "consistent-hash" {
		t.Errorf("the default partitioner is %v", got["partitioner"])
	}
	q.ok("pause", "plain", "--produce")
	list := "jobs  2 partitions, groups audit, work, strict order\nplain  8 partitions, no groups, paused: producing\n"
	if got := q.ok("list").stdout; got != list {
		t.Errorf("list says %q", got)
	}
	if got := field(q.ok("list", "--json").objects(t), "topic"); fmt.Sprint(got) != "[jobs plain]" {
		t.Errorf("list for programs: %v", got)
	}
	q.fails(1, []string{"produce", "plain", "x", "--timeout", "300ms"}, "TOPIC_PAUSED", "parley queue resume")
	for _, one := range []struct{ args, want string }{
		{"pause plain --consume", "plain is paused: producing and consuming\n"},
		{"resume plain --produce", "plain is paused: consuming\n"},
		{"resume plain --produce --consume", "plain is not paused\n"},
		{"pause plain --produce --consume", "plain is paused: producing and consuming\n"},
		{"resume plain --consume", "plain is paused: producing\n"},
	} {
		if got := q.ok(strings.Fields(one.args)...).stdout; got != one.want {
			t.Errorf("%s says %q, want %q", one.args, got, one.want)
		}
	}
	if got := q.object("get", "plain"); got["produce_paused"] != true || got["consume_paused"] != false {
		t.Errorf("get of a paused topic says %v", got)
	}
	q.fails(2, []string{"delete", "plain"}, "--confirm plain")
	q.fails(2, []string{"delete", "plain", "--confirm", "jobs"}, "--confirm plain")
	if got := q.object("delete", "plain", "--confirm", "plain"); got["event"] != "deleted" || got["topic"] != "plain" {
		t.Errorf("delete says %v", got)
	}
	q.fails(1, []string{"get", "plain"}, "TOPIC_NOT_FOUND", "parley queue create")
	q.fails(1, []string{"stats", "plain"}, "TOPIC_NOT_FOUND")
	q.fails(1, []string{"create", "__own"}, "two underscores")
}

// TestQueueGroups checks that groups start at several positions of a topic, and can be moved unless
// they have a consumer.
func TestQueueGroups(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	// Without a retention, messages that the group was moved past may be dropped before it is moved
	// back.
	q.ok("create", "jobs", "--partitions", "1", "--retention", "1d", "--group", "work")
	q.ok("produce", "jobs", "one", "two")
	for place, unread := range map[string]float64{"beginning": 2, "end": 0, "2030-01-01T00:00:00Z": 0, "2020-01-01 12:00:00": 2} {
		if got := q.object("group", "create", "jobs", "other", "--from", place); fmt.Sprint(got) != "map[event:created group:other topic:jobs]" {
			t.Errorf("group create says %v", got)
		}
		q.fails(1, []string{"group", "create", "jobs", "other"}, "GROUP_EXISTS")
		groups, _ := q.object("stats", "jobs")["groups"].([]any)
		if got := groups[0].(map[string]any); got["group"] != "other" || got["unread"] != unread {
			t.Errorf("a group from %s: %v", place, got)
		}
		q.fails(2, []string{"group", "delete", "jobs", "other"}, "--confirm other")
		q.ok("group", "delete", "jobs", "other", "--confirm", "other")
	}
	if got := q.ok("group", "seek", "jobs", "work", "--from", "end").stdout; got != "jobs: work is moved at the end\n" {
		t.Errorf("group seek says %q", got)
	}
	if got := q.group("jobs"); got["unread"] != 0.0 || got["skipped"] != 2.0 {
		t.Errorf("stats of who was moved: %v", got)
	}
	q.ok("group", "seek", "jobs", "work", "--from", "beginning")
	busy := q.start("consume", "jobs", "--group", "work", "--consumer", "ann")
	wantText(t, &busy.stdout, "two")
	q.fails(1, []string{"group", "seek", "jobs", "work", "--from", "end"}, "GROUP_IN_USE", "stop its consumers")
	owner := q.object("partitions", "jobs")
	if owner["consumer"] != "ann" || owner["group"] != "work" || owner["partition"] != 0.0 || owner["epoch"].(float64) <= 0 {
		t.Errorf("the owner is %v", owner)
	}
	if got := q.ok("partitions", "jobs").stdout; !strings.Contains(got, "PARTITION  GROUP  CONSUMER") || !strings.Contains(got, "work   ann") {
		t.Errorf("partitions, as text:\n%s", got)
	}
	busy.interrupt()
	busy.wantEnd(t, 0)
	if got := q.ok("partitions", "jobs").stdout; !strings.Contains(got, "nobody") {
		t.Errorf("partitions without a consumer:\n%s", got)
	}
	q.fails(1, []string{"group", "delete", "jobs", "none", "--confirm", "none"}, "GROUP_NOT_FOUND")
	q.fails(1, []string{"pending", "jobs", "--group", "none"}, "GROUP_NOT_FOUND")
}

// TestQueueUsage checks that mistakes in the arguments are reported with the flag and the limit,
// before anything is sent.
func TestQueueUsage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	q := &queues{t: t, env: map[string]string{"PARLEY_ADDR": "127.0.0.1:1", "PARLEY_TOKEN": "any"}}
	for _, one := range []struct {
		args  string
		texts []string
	}{
		{"create a.b", []string{`<topic> "a.b"`, "1 to 64 characters of"}},
		{"create x --group a.b", []string{`--group "a.b"`}},
		{"create x --partitions 257", []string{"--partitions 257", "1 to 256"}},
		{"create x --partitioner dice", []string{"--partitioner", "consistent-hash"}},
		{"create x --retention 367d", []string{"--retention 367d", "0s to 366d"}},
		{"create x --retention soon", []string{"--retention", "7d"}},
		{"create x --retention-messages 1000000001", []string{"--retention-messages", "0 to 1000000000"}},
		{"create x --dead-letter-retention=-1s", []string{"--dead-letter-retention -1s", "366d"}},
		{"create x --max-length=-1", []string{"--max-length -1", "0 to 1000000000"}},
		{"create x --max-attempts 1001", []string{"--max-attempts 1001", "1 to 1000"}},
		{"create x --min-backoff 0", []string{"--min-backoff 0s", "1ms to 1d"}},
		{"create x --max-backoff 25h", []string{"--max-backoff 25h", "1ms to 1d"}},
		{"create x --min-backoff 2s --max-backoff 1s", []string{"--max-backoff 1s", "2s"}},
		{"create x --non-retryable a,b/c", []string{`--non-retryable "b/c"`, "1 to 64"}},
		{"create x --non-retryable " + strings.Repeat("a,", 32) + "a", []string{"--non-retryable", "33 codes", "at most 32"}},
		{"create x --idempotency-window 8d", []string{"--idempotency-window 8d", "1s to 7d"}},
		{"update x", []string{"at least one setting"}},
		{"update x --max-attempts 0", []string{"--max-attempts 0", "1 to 1000"}},
		{"delete x", []string{"--confirm x"}},
		{"pause a/b --produce", []string{"<topic>"}},
		{"pause x", []string{"pause: requires --produce, --consume or both"}},
		{"resume a/b --produce", []string{"<topic>"}},
		{"resume x", []string{"resume: requires --produce, --consume or both"}},
		{"group create x a/b", []string{`<group> "a/b"`}},
		{"group create x y --from noon", []string{"--from", "beginning, end or a time"}},
		{"group seek x y", []string{"--from"}},
		{"group delete x y", []string{"--confirm y"}},
		{"stats a/b", []string{"<topics>"}},
		{"stats x --interval 1s", []string{"--interval requires --watch"}},
		{"stats x --watch --interval 50ms", []string{"--interval 50ms", "100ms"}},
		{"pending x --limit 10001", []string{"--limit 10001", "1 to 10000"}},
		{"pending x --by luck", []string{"--by", "attempts"}},
		{"partitions x --group a/b", []string{"--group"}},
		{"produce x y --key " + long, []string{"--key: 300 bytes", "256"}},
		{"produce x y --header a/b=c", []string{"--header", "1 to 64"}},
		{"produce x y --header Webhook-Id=c", []string{"--header Webhook-Id", "reserved"}},
		{"produce x y --header a=" + strings.Repeat(long, 4), []string{"--header a: the value has 1200 bytes", "1024"}},
		{"produce x y --idempotency-key " + long, []string{"--idempotency-key", "1 to 128"}},
		{"produce x y z --idempotency-key k", []string{"--idempotency-key applies to a single message"}},
		{"produce x --idempotency-key k", []string{"--idempotency-key applies to a single message"}},
		{"produce x y --whole", []string{"--whole"}},
		{"produce x y --key a --key-separator :", []string{"--key", "--key-separator"}},
		{"produce x y --key-separator :", []string{"payload 1", `":"`}},
		{"produce x y --delay 367d", []string{"--delay 367d", "366d"}},
		{"produce x y --delay 1s --at 2030-01-01T00:00:00Z", []string{"--delay and --at"}},
		{"produce x y --at 1999-01-01T00:00:00Z", []string{"--at", "2000"}},
		{"produce x y --at 9000-01-01T00:00:00Z", []string{"--at", "366d"}},
		{"cancel x 17", []string{`"17"`, "an id like"}},
		{"reschedule x 3-1767225600000-0d", []string{"--delay or --at"}},
		{"consume x", []string{"--group"}},
		{"consume x --group y --concurrency 5001", []string{"--concurrency 5001", "1 to 5000"}},
		{"consume x --group y --count=-1", []string{"--count -1"}},
		{"consume x --group y --consumer a/b", []string{"--consumer"}},
		{"consume x --group y --ack --nack", []string{"--ack and --nack"}},
		{"consume x --group y --nack --exec true", []string{"--nack and --exec"}},
		{"consume x --group y --reason z", []string{"--reason", "--nack"}},
		{"consume x --group y --nack --code a/b", []string{"--code"}},
		{"consume x --group y --nack --reason " + strings.Repeat(long, 4), []string{"--reason: 1200 bytes", "1024"}},
		{"consume x --group y --retry-after 1s", []string{"--retry-after"}},
		{"consume x --group y --nack --retry-after 1s --dead-letter", []string{"--retry-after"}},
		{"consume x --group y --exec true --raw", []string{"--raw"}},
		{"consume x --group y --exec-timeout 1s", []string{"--exec-timeout"}},
		{"consume x --group y --ack-timeout 13h", []string{"--ack-timeout 13h", "1s to 12h"}},
		{"dlq a/b", []string{"<topic>"}},
		{"dlq list x --limit 0", []string{"--limit 0"}},
		{"dlq purge x --all", []string{"--confirm x"}},
		{"dlq purge x --group y", []string{"--confirm x"}},
		{"dlq purge x 3-1-0", []string{"--confirm x"}},
		{"dlq purge x --confirm x", []string{"dlq purge: requires ids, --group or --all"}},
		{"dlq purge x --confirm x --all 3-1-0", []string{"--all and ids exclude"}},
		{"dlq purge x --confirm x --group y 3-1-0", []string{"--group and ids exclude"}},
		{"dlq purge x --confirm x --group y --all", []string{"--group and --all"}},
		{"dlq purge x --confirm x --group a/b", []string{`--group "a/b"`}},
		{"dlq purge x --confirm x 3-1", []string{`"3-1"`, "an id like"}},
		{"dlq replay x", []string{"dlq replay: requires ids, --group or --all"}},
		{"dlq replay x --all 3-1-0", []string{"--all and ids exclude"}},
		{"dlq replay x --group y 3-1-0", []string{"--group and ids exclude"}},
		{"dlq replay x --group y --all", []string{"--group and --all"}},
		{"dlq replay x 3-1-0 --limit 4", []string{"--limit requires --group or --all"}},
		{"dlq replay x --all --to 256", []string{"--to 256", "0 to 255"}},
		{"list --timeout=-1s", []string{"--timeout -1s", "0 means no deadline"}},
		{"trim x", []string{"--keep or --older-than"}},
		{"trim x --keep 1 --older-than 1s", []string{"--keep and --older-than"}},
		{"trim x --keep=-1", []string{"--keep -1", "0 to 1000000000"}},
		{"trim x --older-than 367d", []string{"--older-than 367d", "366d"}},
	} {
		q.fails(2, strings.Fields(one.args), one.texts...)
	}
}

// TestQueueOnDeadServer checks that a command against a dead server ends with an error.
func TestQueueOnDeadServer(t *testing.T) {
	t.Parallel()
	q := &queues{t: t, env: map[string]string{"PARLEY_ADDR": "127.0.0.1:1", "PARLEY_TOKEN": "any"}}
	for _, args := range []string{
		"create x", "update x --max-attempts 2", "get x", "list", "delete x --confirm x", "pause x --produce", "resume x --consume", "group create x y",
		"group delete x y --confirm y", "group seek x y --from end", "stats", "stats x --watch", "pending x", "partitions x", "produce x y",
		"produce x y --delay 1s", "cancel x 3-1767225600000-0d", "reschedule x 3-1767225600000-0d --delay 1s", "dlq x",
		"dlq purge x --all --confirm x", "dlq replay x --all", "dlq replay x 3-1-0", "trim x --keep 1",
	} {
		q.fails(1, append(strings.Fields(args), "--timeout", "200ms"), "refused")
	}
}

// payloads returns the lines that a consume command printed, sorted, because partitions have no
// order among themselves.
func payloads(stdout string) []string {
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	slices.Sort(lines)
	return lines
}
