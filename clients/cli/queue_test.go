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
// show, list, pause, resume, repair and delete them.
func TestQueueTopics(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	made := q.object("create", "jobs", "--group", "work", "--group", "audit", "--partitions", "2", "--partitioner", "consistent-hash",
		"--retention", "7d", "--retention-messages", "100", "--dead-letter-retention", "1.5d", "--max-dead-letters", "50",
		"--max-length", "1000", "--drop-oldest", "--idempotency-window", "1h", "--order", "strict", "--max-attempts", "3")
	want := map[string]any{
		"topic": "jobs", "partitions": 2.0, "partitioner": "consistent-hash", "groups": []any{"work", "audit"},
		"retention_ms": 604800000.0, "retention_messages": 100.0, "dead_letter_retention_ms": 129600000.0, "max_dead_letters": 50.0,
		"max_length": 1000.0, "drop_oldest": true, "idempotency_window_ms": 3600000.0, "paused": false, "create_time": made["create_time"],
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("create says (-want +got):\n%s", diff)
	}
	if got := q.object("group", "get", "jobs", "audit"); got["order"] != "strict" || got["max_attempts"] != 3.0 {
		t.Errorf("a group that was created with its topic: %v", got)
	}
	q.fails(1, []string{"create", "jobs"}, "TOPIC_EXISTS")
	want["groups"], want["max_dead_letters"], want["drop_oldest"], want["partitions"] = []any{"audit", "work"}, 60.0, false, 4.0
	changed := q.object("update", "jobs", "--max-dead-letters", "60", "--no-drop-oldest", "--partitions", "4")
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("update says (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, q.object("get", "jobs")); diff != "" {
		t.Errorf("get says (-want +got):\n%s", diff)
	}
	text := q.ok("get", "jobs").stdout
	for _, line := range []string{"retention              7d", "max-dead-letters       60", "groups                 audit, work"} {
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
	if got := q.ok("pause", "plain").stdout; got != "plain is paused\n" {
		t.Errorf("pause says %q", got)
	}
	list := "jobs  4 partitions, groups audit, work\nplain  8 partitions, no groups, paused\n"
	if got := q.ok("list").stdout; got != list {
		t.Errorf("list says %q", got)
	}
	if got := field(q.ok("list", "--json").objects(t), "topic"); fmt.Sprint(got) != "[jobs plain]" {
		t.Errorf("list for programs: %v", got)
	}
	eventually(t, func() error { // every node notices within two seconds
		got := q.run("produce", "plain", "x", "--timeout", "300ms")
		if got.code != 1 || !strings.Contains(got.stderr, "TOPIC_PAUSED") || !strings.Contains(got.stderr, "parley queue resume") {
			return fmt.Errorf("produce to a paused topic: %+v", got)
		}
		return nil
	})
	if got := q.ok("resume", "plain").stdout; got != "plain is not paused\n" {
		t.Errorf("resume says %q", got)
	}
	q.ok("produce", "plain", "x")
	if got := q.ok("repair", "plain").stdout; got != "plain: nothing was missing\n" {
		t.Errorf("repair says %q", got)
	}
	q.fails(2, []string{"delete", "plain"}, "--confirm plain")
	q.fails(2, []string{"delete", "plain", "--confirm", "jobs"}, "--confirm plain")
	if got := q.object("delete", "plain", "--confirm", "plain"); got["event"] != "deleted" || got["topic"] != "plain" {
		t.Errorf("delete says %v", got)
	}
	q.fails(1, []string{"get", "plain"}, "TOPIC_NOT_FOUND", "parley queue create")
	q.fails(1, []string{"stats", "plain"}, "TOPIC_NOT_FOUND")
	q.fails(1, []string{"create", "__own"}, "names that begin with __ are reserved")
}

// TestQueueGroups checks that the group commands create groups with every setting, and update,
// show, list, pause, resume and delete them.
func TestQueueGroups(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	want := map[string]any{
		"topic": "jobs", "group": "mail", "mode": "exclusive", "order": "none", "max_attempts": 3.0, "min_backoff_ms": 10.0,
		"max_backoff_ms": 90000.0, "non_retryable": []any{"bad", "exit-65"}, "ack_timeout_ms": 60000.0, "handler_timeout_ms": 500.0,
		"max_run_time_ms": 7200000.0, "resume_grace_ms": 20000.0, "paused": false,
	}
	made := q.object("group", "create", "jobs", "mail", "--mode", "exclusive", "--order", "none", "--max-attempts", "3",
		"--min-backoff", "10ms", "--max-backoff", "1m30s", "--non-retryable", "bad,exit-65", "--ack-timeout", "1m",
		"--handler-timeout", "500ms", "--max-run-time", "2h", "--resume-grace", "20s")
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("group create says (-want +got):\n%s", diff)
	}
	q.fails(1, []string{"group", "create", "jobs", "mail"}, "GROUP_EXISTS")
	want["max_attempts"], want["non_retryable"], want["order"], want["resume_grace_ms"] = 5.0, []any{}, "key", 30000.0
	changed := q.object("group", "update", "jobs", "mail", "--max-attempts", "5", "--non-retryable", "", "--order", "key", "--resume-grace", "30s")
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("group update says (-want +got):\n%s", diff)
	}
	text := q.ok("group", "get", "jobs", "mail").stdout
	for _, line := range []string{"mode             exclusive", "max-backoff      1m30s", "non-retryable    none", "max-run-time     2h"} {
		if !strings.HasPrefix(text, "jobs/mail\n") || !strings.Contains(text, "  "+line+"\n") {
			t.Errorf("group get, as text has no %q:\n%s", line, text)
		}
	}
	if got := q.ok("group", "pause", "jobs", "mail").stdout; got != "jobs: mail is paused\n" {
		t.Errorf("group pause says %q", got)
	}
	list := "mail  exclusive, order key, 5 attempts, paused\nwork  shared, order key, 16 attempts\n"
	if got := q.ok("group", "list", "jobs").stdout; got != list {
		t.Errorf("group list says %q", got)
	}
	if got := q.object("group", "resume", "jobs", "mail"); got["paused"] != false {
		t.Errorf("group resume says %v", got)
	}
	if got := field(q.ok("group", "list", "jobs", "--json").objects(t), "group"); fmt.Sprint(got) != "[mail work]" {
		t.Errorf("group list for programs: %v", got)
	}
	q.fails(2, []string{"group", "delete", "jobs", "mail"}, "--confirm mail")
	q.ok("group", "delete", "jobs", "mail", "--confirm", "mail")
	q.fails(1, []string{"group", "get", "jobs", "mail"}, "GROUP_NOT_FOUND", "parley queue group create")
	q.fails(1, []string{"group", "delete", "jobs", "none", "--confirm", "none"}, "GROUP_NOT_FOUND")
}

// TestQueueSeek checks that groups start at several positions of a topic, and can be moved.
func TestQueueSeek(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	// Without a retention, messages that the group was moved past may be dropped before it is moved
	// back.
	q.ok("create", "jobs", "--partitions", "1", "--retention", "1d", "--group", "work")
	q.ok("produce", "jobs", "one", "two")
	for place, waiting := range map[string]float64{"beginning": 2, "end": 0, "2030-01-01T00:00:00Z": 0, "2020-01-01 12:00:00": 2} {
		if got := q.ok("group", "create", "jobs", "other", "--from", place).stdout; !strings.HasPrefix(got, "jobs: other is created, from ") {
			t.Errorf("group create says %q", got)
		}
		groups, _ := q.object("stats", "jobs")["groups"].([]any)
		if got := groups[0].(map[string]any); got["group"] != "other" || got["waiting"] != waiting {
			t.Errorf("a group from %s: %v", place, got)
		}
		q.ok("group", "delete", "jobs", "other", "--confirm", "other")
	}
	if got := q.ok("group", "seek", "jobs", "work", "--from", "end").stdout; got != "jobs: work is moved to the end\n" {
		t.Errorf("group seek says %q", got)
	}
	if got := q.group("jobs"); got["waiting"] != 0.0 {
		t.Errorf("stats of who was moved: %v", got)
	}
	q.ok("group", "seek", "jobs", "work", "--from", "beginning")
	came := payloads(q.ok("consume", "jobs", "--group", "work", "--count", "2").stdout)
	if !slices.Equal(came, []string{"one", "two"}) {
		t.Errorf("after the move came %q", came)
	}
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
		{"create x --max-dead-letters=-1", []string{"--max-dead-letters -1", "0 to 1000000000"}},
		{"create x --max-attempts 5", []string{"--max-attempts: a setting of groups", "requires --group"}},
		{"create x --group y --max-attempts 1001", []string{"--max-attempts 1001", "1 to 1000"}},
		{"group create x y --min-backoff 0", []string{"--min-backoff 0s", "1ms to 1d"}},
		{"group create x y --max-backoff 25h", []string{"--max-backoff 25h", "1ms to 1d"}},
		{"group create x y --min-backoff 2s --max-backoff 1s", []string{"--max-backoff 1s", "2s"}},
		{"group create x y --non-retryable a,b/c", []string{`--non-retryable "b/c"`, "1 to 64"}},
		{"group create x y --non-retryable " + strings.Repeat("a,", 32) + "a", []string{"--non-retryable", "33 codes", "at most 32"}},
		{"group create x y --mode any", []string{`--mode "any"`, "shared or exclusive"}},
		{"group create x y --order best", []string{`--order "best"`, "key, strict or none"}},
		{"group create x y --order unspecified", []string{`--order "unspecified"`}},
		{"group update x y", []string{"at least one setting"}},
		{"group update x y --ack-timeout 13h", []string{"--ack-timeout 13h", "1s to 12h"}},
		{"group update x y --handler-timeout 8d", []string{"--handler-timeout 8d", "1ms to 7d"}},
		{"group update x y --max-run-time 8d", []string{"--max-run-time 8d", "1s to 7d"}},
		{"group update x y --resume-grace 11m", []string{"--resume-grace 11m", "1s to 10m"}},
		{"group pause x a/b", []string{`<group> "a/b"`}},
		{"create x --idempotency-window 8d", []string{"--idempotency-window 8d", "1s to 7d"}},
		{"update x", []string{"at least one setting"}},
		{"update x --partitions 0", []string{"--partitions 0", "1 to 256"}},
		{"delete x", []string{"--confirm x"}},
		{"pause a/b", []string{"<topic>"}},
		{"resume a/b", []string{"<topic>"}},
		{"repair a/b", []string{"<topic>"}},
		{"group create x a/b", []string{`<group> "a/b"`}},
		{"group create x y --from noon", []string{"--from", "beginning, end or a time"}},
		{"group seek x y", []string{"--from"}},
		{"group delete x y", []string{"--confirm y"}},
		{"stats a/b", []string{"<topics>"}},
		{"stats x --interval 1s", []string{"--interval requires --watch"}},
		{"stats x --watch --interval 50ms", []string{"--interval 50ms", "100ms"}},
		{"jobs x --limit 0", []string{"--limit 0", "1 to 1000000000"}},
		{"jobs x --state dead", []string{"--state", "retrying"}},
		{"jobs x --full", []string{"--full requires --json", "parley queue job"}},
		{"jobs x --key " + long, []string{"--key: 300 bytes", "256"}},
		{"job x " + long, []string{"<message-id>", "1 to 128 bytes"}},
		{"consumers x --group a/b", []string{"--group"}},
		{"partitions x --group a/b", []string{"--group"}},
		{"retry x --group y", []string{"retry: requires ids or --all"}},
		{"retry x 1-2", []string{"--group"}},
		{"retry x 1-2 --group y --all", []string{"--all and ids exclude"}},
		{"produce x y --key " + long, []string{"--key: 300 bytes", "256"}},
		{"produce x y --header a/b=c", []string{"--header", "1 to 64"}},
		{"produce x y --header Webhook-Id=c", []string{"--header Webhook-Id", "reserved"}},
		{"produce x y --header a=" + strings.Repeat(long, 4), []string{"--header a: the value has 1200 bytes", "1024"}},
		{"produce x y --idempotency-key " + long, []string{"--idempotency-key", "1 to 128"}},
		{"produce x y z --idempotency-key k", []string{"--idempotency-key applies to a single message"}},
		{"produce x --idempotency-key k", []string{"--idempotency-key applies to a single message"}},
		{"produce x y --max-attempts 1001", []string{"--max-attempts 1001", "1 to 1000"}},
		{"produce x y --handler-timeout 8d", []string{"--handler-timeout 8d", "1ms to 7d"}},
		{"produce x y --ttl 367d", []string{"--ttl 367d", "1ms to 366d"}},
		{"produce x y --unique " + long, []string{"--unique", "1 to 128"}},
		{"produce x y z --unique k", []string{"--unique applies to a single message"}},
		{"produce x y --on-conflict keep", []string{"--on-conflict", "require --unique"}},
		{"produce x y --unique k --on-conflict fight", []string{`--on-conflict "fight"`, "reject, keep or replace"}},
		{"produce x y --unique k --unique-for 8d", []string{"--unique-for 8d", "1s to 7d"}},
		{"produce x y --whole", []string{"--whole"}},
		{"produce x y --key a --key-separator :", []string{"--key", "--key-separator"}},
		{"produce x y --key-separator :", []string{"payload 1", `":"`}},
		{"produce x y --delay 367d", []string{"--delay 367d", "366d"}},
		{"produce x y --delay 1s --at 2030-01-01T00:00:00Z", []string{"--delay and --at"}},
		{"produce x y --at 1999-01-01T00:00:00Z", []string{"--at", "2000"}},
		{"produce x y --at 9000-01-01T00:00:00Z", []string{"--at", "366d"}},
		{"cancel x 17 " + long, []string{"<message-ids>", "1 to 128 bytes"}},
		{"reschedule x 3-1767225600000-0d", []string{"--delay or --at"}},
		{"consume x", []string{"--group"}},
		{"consume " + strings.Repeat("x ", 17) + "--group y", []string{"<topics>: 17 topics", "at most 16"}},
		{"consume x --group y --concurrency 10001", []string{"--concurrency 10001", "1 to 10000"}},
		{"consume x --group y --concurrency 5 --max-in-flight 4", []string{"--max-in-flight 4", "--concurrency, 5, to 10000"}},
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
		{"dlq purge x --confirm x " + long, []string{"<dead-letter-ids>", "1 to 128 bytes"}},
		{"dlq list x --code a/b", []string{"--code"}},
		{"dlq replay x", []string{"dlq replay: requires ids, --group or --all"}},
		{"dlq replay x --all 3-1-0", []string{"--all and ids exclude"}},
		{"dlq replay x --group y 3-1-0", []string{"--group and ids exclude"}},
		{"dlq replay x --group y --all", []string{"--group and --all"}},
		{"dlq replay x 3-1-0 --limit 4", []string{"--limit requires --group or --all"}},
		{"dlq replay x --all --to a/b", []string{`--to "a/b"`}},
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
		"create x", "update x --max-length 2", "get x", "list", "delete x --confirm x", "pause x", "resume x", "repair x", "group create x y",
		"group update x y --max-attempts 2", "group get x y", "group list x", "group pause x y", "group resume x y",
		"group delete x y --confirm y", "group seek x y --from end", "stats", "stats x --watch", "jobs x", "job x 1-2", "consumers x",
		"partitions x", "retry x 1-2 --group y", "retry x --all --group y", "produce x y",
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
