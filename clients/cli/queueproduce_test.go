package cli_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQueueProduce checks that produce stores the messages of its arguments, lines and whole
// inputs, with all their flags.
func TestQueueProduce(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	if got := q.ok("produce", "jobs", "one", "two words").stdout; strings.Count(got, "in partition 0\n") != 2 || !strings.HasPrefix(got, "jobs: 0-") {
		t.Errorf("produce says %q", got)
	}
	lines := q.pipe("ann:hello\n\nbob:it's 12:00\n", "produce", "jobs", "--key-separator", ":", "--header", "a=1", "--header", "b=x=y", "--json").
		wantOK(t).objects(t)
	if fmt.Sprint(field(lines, "key")) != "[ann bob]" || fmt.Sprint(field(lines, "duplicate")) != "[false false]" {
		t.Errorf("lines: %v", lines)
	}
	if lines[0]["message_id"] == lines[1]["message_id"] || lines[0]["due_time"] != nil {
		t.Errorf("lines: %v", lines)
	}
	q.pipe("\x00\xff\n\x1b[31mred", "produce", "jobs", "--whole", "--key", "k").wantOK(t)
	first := q.object("produce", "jobs", "once", "--idempotency-key", "first")
	if got := q.object("produce", "jobs", "once", "--idempotency-key", "first"); got["duplicate"] != true || got["message_id"] != first["message_id"] {
		t.Errorf("a repeat says %v after %v", got, first)
	}
	if got := q.ok("produce", "jobs", "once", "--idempotency-key", "first").stdout; !strings.Contains(got, "(duplicate)") {
		t.Errorf("a repeat says %q", got)
	}
	q.fails(1, []string{"produce", "jobs", "other", "--idempotency-key", "first"}, "payload 1", "IDEMPOTENCY_KEY_REUSED")
	if got := q.pipe(strings.Repeat("line\n", 2500), "produce", "jobs", "-q").wantOK(t).stdout; got != "jobs: 2500 messages produced\n" {
		t.Errorf("quiet says %q", got)
	}
	count := q.pipe("once", "produce", "jobs", "--whole", "-q", "--json", "--idempotency-key", "first").wantOK(t).stdout
	if count != `{"event":"produced","topic":"jobs","produced":1,"duplicates":1}`+"\n" {
		t.Errorf("quiet for programs: %q", count)
	}
	got := q.ok("consume", "jobs", "--group", "work", "--count", "2506", "--json").objects(t)
	if len(got) != 2506 {
		t.Fatalf("%d messages came", len(got))
	}
	want := []any{"one", "two words", "hello", "it's 12:00", nil, "once"}
	if diff := cmp.Diff(want, field(got[:6], "payload")); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
	binary := got[4]
	if binary["payload_base64"] != "AP8KG1szMW1yZWQ=" || binary["key"] != "k" || binary["attempt"] != 1.0 || binary["partition"] != 0.0 {
		t.Errorf("the whole input: %v", binary)
	}
	if headers, _ := got[2]["headers"].(map[string]any); headers["a"] != "1" || headers["b"] != "x=y" {
		t.Errorf("headers: %v", headers)
	}
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(got[0]["produce_time"])); err != nil || time.Since(at) > time.Hour {
		t.Errorf("produced at %v", got[0]["produce_time"])
	}
}

// TestQueueProduceOfLongLines checks that lines before one that is too long are produced, and that
// the error has the line's number.
func TestQueueProduceOfLongLines(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	const limit = 256 << 10
	for _, size := range []int{limit + 1, 8 * limit} {
		got := q.pipe(strings.Repeat("a", limit)+"\n"+strings.Repeat("b", size)+"\nc\n", "produce", "jobs")
		if got.code != 1 || !strings.Contains(got.stderr, "line 2") || !strings.Contains(got.stderr, "262144 bytes") ||
			!strings.Contains(got.stderr, "1 message was produced") || strings.Count(got.stdout, "\n") != 1 {
			t.Errorf("%d bytes: exit code %d, stdout %q, stderr %q", size, got.code, got.stdout, got.stderr)
		}
		whole := q.pipe(strings.Repeat("b", size), "produce", "jobs", "--whole")
		if whole.code != 1 || !strings.Contains(whole.stderr, "262144 bytes") {
			t.Errorf("%d bytes as a whole: exit code %d, stderr %q", size, whole.code, whole.stderr)
		}
	}
	q.fails(2, []string{"produce", "jobs", "fine", strings.Repeat("b", limit+1)}, "payload 2", "262144 bytes")
	if got := q.pipe("no separator\n", "produce", "jobs", "--key-separator", "::"); got.code != 1 || !strings.Contains(got.stderr, "line 1") {
		t.Errorf("a line without a key: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := q.group("jobs"); got["waiting"] != 2.0 {
		t.Errorf("stats %v", got)
	}
}

// TestQueueProduceFollowsItsInput checks that produce stores each line as it arrives, and ends at
// once when interrupted.
func TestQueueProduceFollowsItsInput(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--group", "work")
	in, out := io.Pipe()
	r := &running{done: make(chan int, 1)}
	q.startTo(r, in, &r.stdout, "produce", "jobs")
	for i := range 3 {
		_, _ = fmt.Fprintln(out, "line", i)
		eventually(t, func() error {
			if n := strings.Count(r.stdout.String(), "\n"); n != i+1 {
				return fmt.Errorf("%d receipts", n)
			}
			return nil
		})
	}
	r.interrupt()
	r.wantEnd(t, 1)
	if got := r.stderr.String(); !strings.Contains(got, "interrupted") || !strings.Contains(got, "3 messages were produced") {
		t.Errorf("stderr %q", got)
	}
	_ = out.Close()
}

// TestQueueProduceToFullTopic checks that produce into a full topic ends at --timeout.
func TestQueueProduceToFullTopic(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "small", "--partitions", "1", "--max-length", "2")
	q.ok("produce", "small", "1", "2")
	q.fails(1, []string{"produce", "small", "3", "--timeout", "500ms"}, "TOPIC_FULL", "deadline of 500ms")
}

// TestQueueUnique checks that a second message with a unique key is refused, kept out, or replaces
// the first.
func TestQueueUnique(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	first := q.object("produce", "jobs", "one", "--unique", "k", "--delay", "1h", "--unique-for", "7d", "--while-running")
	q.fails(1, []string{"produce", "jobs", "two", "--unique", "k"}, "payload 1", "UNIQUE_KEY_IN_USE")
	if got := q.object("produce", "jobs", "two", "--unique", "k", "--on-conflict", "keep"); got["duplicate"] != true || got["message_id"] != first["message_id"] {
		t.Errorf("keep says %v after %v", got, first)
	}
	if got := q.object("produce", "jobs", "three", "--unique", "k", "--on-conflict", "replace"); got["duplicate"] != false {
		t.Errorf("replace says %v", got)
	}
	if got := q.ok("consume", "jobs", "--group", "work", "--count", "1").stdout; got != "three\n" {
		t.Errorf("%q came", got)
	}
	if got := q.object("stats", "jobs"); got["scheduled"] != 0.0 || got["cancelled"] != 1.0 {
		t.Errorf("stats %v", got)
	}
}

// TestQueueProduceLimits checks that messages can have their own number of attempts, handler
// timeout and time to live.
func TestQueueProduceLimits(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work", "--max-attempts", "3")
	q.ok("produce", "jobs", "once", "--max-attempts", "1", "--handler-timeout", "200ms")
	got := q.ok("consume", "jobs", "--group", "work", "--count", "1", "--exec", "sleep 60")
	if !strings.Contains(got.stderr, "longer than its timeout") || q.object("dlq", "jobs")["code"] != "timeout" {
		t.Errorf("after its timeout: stderr %q", got.stderr)
	}
	q.ok("group", "pause", "jobs", "work")
	q.ok("produce", "jobs", "short", "--ttl", "1ms")
	q.ok("produce", "jobs", "long", "--ttl", "1h")
	q.ok("group", "resume", "jobs", "work")
	if got := q.ok("consume", "jobs", "--group", "work", "--count", "1").stdout; got != "long\n" {
		t.Errorf("%q came", got)
	}
	if got := q.group("jobs"); got["expired"] != 1.0 || got["dead"] != 1.0 || got["acked"] != 1.0 {
		t.Errorf("stats %v", got)
	}
}

// TestQueueSchedule checks that scheduled messages are delivered when they are due, and can be
// cancelled and rescheduled.
func TestQueueSchedule(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	began := time.Now()
	late := q.ok("produce", "jobs", "first", "second", "third", "--delay", "1d", "--json").objects(t)
	ids := make([]string, len(late))
	for i, m := range late {
		ids[i] = fmt.Sprint(m["message_id"])
		due, err := time.Parse(time.RFC3339, fmt.Sprint(m["due_time"]))
		if ahead := due.Sub(began); err != nil || ahead < 23*time.Hour || ahead > 25*time.Hour {
			t.Errorf("%v is due in %s: %v", m, ahead, err)
		}
	}
	if got := q.object("stats", "jobs"); got["scheduled"] != 3.0 || got["length"] != 0.0 {
		t.Errorf("stats %v", got)
	}
	next := began.Add(100 * 24 * time.Hour).Truncate(time.Second)
	at := q.object("reschedule", "jobs", ids[2], "--at", next.In(time.FixedZone("", 3600)).Format(time.RFC3339))
	if at["event"] != "rescheduled" || at["due_time"] != next.UTC().Format("2006-01-02T15:04:05.000Z") {
		t.Errorf("reschedule at %s says %v", next, at)
	}
	got := q.run("cancel", "jobs", ids[1], "0-7", ids[2])
	if got.code != 1 || !strings.Contains(got.stderr, "0-7: not_found (MESSAGE_NOT_FOUND)") ||
		got.stdout != fmt.Sprintf("jobs: %s is cancelled\njobs: %s is cancelled\n", ids[1], ids[2]) {
		t.Errorf("cancel: exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
	q.fails(1, []string{"reschedule", "jobs", ids[1], "--delay", "1s"}, "SCHEDULED_NOT_FOUND")
	if got := q.ok("reschedule", "jobs", ids[0], "--delay", "10ms").stdout; !strings.Contains(got, ids[0]+" is due ") {
		t.Errorf("reschedule says %q", got)
	}
	past := q.ok("produce", "jobs", "overdue", "--at", "2026-01-01 00:00:00").stdout
	if !strings.Contains(past, ", due ") {
		t.Errorf("produce of what is due says %q", past)
	}
	came := payloads(q.ok("consume", "jobs", "--group", "work", "--count", "2").stdout)
	if want := []string{"first", "overdue"}; !slices.Equal(came, want) {
		t.Errorf("%q came, want %q", came, want)
	}
}
