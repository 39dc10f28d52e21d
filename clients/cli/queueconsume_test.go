package cli_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQueueConsume checks that consume prints and acknowledges --count messages, and releases the
// others.
func TestQueueConsume(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.pipe("a\x1b[31m\tb", "produce", "jobs", "--whole").wantOK(t)
	q.ok("produce", "jobs", "two", "three", "four", "five")
	got := q.ok("consume", "jobs", "--group", "work", "--count", "2")
	if got.stdout != `a\x1b[31m\tb`+"\ntwo\n" || !strings.Contains(got.stderr, "consuming jobs as work") || !strings.Contains(got.stderr, "2 acked") {
		t.Errorf("consume: stdout %q, stderr %q", got.stdout, got.stderr)
	}
	if got := q.group("jobs"); got["acked"] != 2.0 || got["consumers"] != 0.0 {
		t.Errorf("stats %v", got)
	}
	rest := q.ok("consume", "jobs", "--group", "work", "--ack", "--count", "3", "--json", "--unary").objects(t)
	if diff := cmp.Diff([]any{"three", "four", "five"}, field(rest, "payload")); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
	if got := field(rest, "attempt"); fmt.Sprint(got) != "[1 1 1]" {
		t.Errorf("released messages count as attempts: %v", got)
	}
	q.pipe("a\x1b[31m\tb", "produce", "jobs", "--whole").wantOK(t)
	if got := q.ok("consume", "jobs", "--group", "work", "--count", "1", "--raw").stdout; got != "a\x1b[31m\tb\n" {
		t.Errorf("raw: %q", got)
	}
	q.fails(1, []string{"consume", "jobs", "--group", "none"}, "GROUP_NOT_FOUND", "parley queue group create")
	q.fails(1, []string{"consume", "none", "--group", "work"}, "TOPIC_NOT_FOUND")
}

// TestQueueConsumeCounts checks that a concurrent consume handles exactly --count messages.
func TestQueueConsumeCounts(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "4", "--group", "work")
	q.pipe(strings.Repeat("x\n", 400), "produce", "jobs", "-q").wantOK(t)
	for round := range 10 {
		got := q.ok("consume", "jobs", "--group", "work", "--count", "30", "--concurrency", "20")
		if n := strings.Count(got.stdout, "x\n"); n != 30 || !strings.Contains(got.stderr, "30 acked") {
			t.Errorf("round %d: %d came; stderr %q", round, n, got.stderr)
		}
	}
	if got := field(q.ok("consume", "jobs", "--group", "work", "--count", "100", "--json").objects(t), "attempt"); slices.Contains(got, any(2.0)) {
		t.Errorf("attempts %v", got)
	}
}

// TestQueueConsumeTopics checks that one consumer gets the messages of several topics.
func TestQueueConsumeTopics(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	for _, topic := range []string{"jobs", "mail"} {
		q.ok("create", topic, "--partitions", "2", "--group", "work")
		q.ok("produce", topic, "of "+topic)
	}
	got := q.ok("consume", "jobs", "mail", "--group", "work", "--count", "2", "--concurrency", "2", "--max-in-flight", "10")
	if came := payloads(got.stdout); !slices.Equal(came, []string{"of jobs", "of mail"}) || !strings.Contains(got.stderr, "consuming jobs, mail as work") {
		t.Errorf("stdout %q, stderr %q", got.stdout, got.stderr)
	}
}

// TestQueueConsumeInterrupted checks that an interrupted consumer exits with 0 and leaves no
// running delivery and no session.
func TestQueueConsumeInterrupted(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "2", "--group", "work")
	r := q.start("consume", "jobs", "--group", "work")
	q.ok("produce", "jobs", "one")
	wantText(t, &r.stdout, "one\n")
	r.interrupt()
	r.wantEnd(t, 0)
	if got := r.stderr.String(); !strings.HasSuffix(got, "parley: 1 acked\n") {
		t.Errorf("stderr %q", got)
	}
	if got := q.group("jobs"); got["acked"] != 1.0 || got["running"] != 0.0 || got["consumers"] != 0.0 {
		t.Errorf("stats %v", got)
	}
}

// broken is an output whose writes fail.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestQueueConsumeToBrokenOutput checks that messages that could not be printed are not
// acknowledged.
func TestQueueConsumeToBrokenOutput(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.ok("produce", "jobs", "one", "two")
	for _, args := range [][]string{nil, {"--json"}, {"--exec", "cat"}, {"--exec", "cat", "--json"}} {
		r := &running{done: make(chan int, 1)}
		q.startTo(r, strings.NewReader(""), broken{}, append([]string{"consume", "jobs", "--group", "work"}, args...)...)
		r.wantEnd(t, 1)
		if got := r.stderr.String(); !strings.Contains(got, "disk full") || !strings.Contains(got, "0 acked") {
			t.Errorf("%q: stderr %q", args, got)
		}
	}
	if got := field(q.ok("consume", "jobs", "--group", "work", "--count", "2", "--json").objects(t), "attempt"); fmt.Sprint(got) != "[1 1]" {
		t.Errorf("attempts %v", got)
	}
}

// TestQueueNack checks the outcomes of a nack: a retry with the group's backoff or after a given
// delay, and a dead letter by flag or by code.
func TestQueueNack(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work", "--non-retryable", "bad", "--min-backoff", "1ms", "--max-backoff", "2ms")
	q.ok("produce", "jobs", "coded")
	if got := q.ok("consume", "jobs", "--group", "work", "--count", "1", "--nack", "--code", "bad", "--reason", "no good"); got.stdout != "coded\n" ||
		!strings.Contains(got.stderr, "0 acked, 1 failed") {
		t.Errorf("nack: %+v", got)
	}
	q.ok("produce", "jobs", "dead", "--key", "k", "--header", "h=1")
	q.ok("consume", "jobs", "--group", "work", "--count", "1", "--nack", "--dead-letter")
	q.ok("produce", "jobs", "later")
	q.ok("consume", "jobs", "--group", "work", "--count", "1", "--nack", "--retry-after", "1h")
	if got := q.group("jobs"); got["retrying"] != 1.0 || got["dead"] != 2.0 {
		t.Errorf("stats %v", got)
	}
	q.ok("produce", "jobs", "again")
	q.ok("consume", "jobs", "--group", "work", "--count", "1", "--nack")
	if got := q.ok("consume", "jobs", "--group", "work", "--count", "1", "--json").objects(t); got[0]["payload"] != "again" || got[0]["attempt"] != 2.0 {
		t.Errorf("tried again: %v", got)
	}
	dead := q.ok("dlq", "list", "jobs", "--json").objects(t)
	if diff := cmp.Diff([]any{"dead", "coded"}, field(dead, "payload")); diff != "" {
		t.Fatalf("dead letters (-want +got):\n%s", diff)
	}
	one := dead[0]
	delete(one["headers"].(map[string]any), "traceparent")
	want := map[string]any{
		"topic": "jobs", "group": "work", "payload": "dead", "key": "k", "headers": map[string]any{"h": "1"}, "attempts": 1.0, "partition": 0.0,
		"reason": "nacked by hand", "dead_letter_id": one["dead_letter_id"], "message_id": one["message_id"], "produce_time": one["produce_time"],
		"dead_letter_time": one["dead_letter_time"],
	}
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("a dead letter (-want +got):\n%s", diff)
	}
	if dead[1]["reason"] != "no good" || dead[1]["code"] != "bad" {
		t.Errorf("a dead letter: %v", dead[1])
	}
}

// TestQueueExec checks that the exit code of the --exec command decides whether a message is acked,
// retried or made a dead letter.
func TestQueueExec(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "2", "--group", "work", "--max-attempts", "2", "--min-backoff", "1ms", "--max-backoff", "2ms",
		"--non-retryable", "exit-65,signal-9")
	q.ok("produce", "jobs", "fine", "--key", "k", "--header", "h=1")
	q.ok("produce", "jobs", "once", "poison", "coded", "killed", "quiet")
	const command = `read -r x || true
		echo "out $x $PARLEY_TOPIC/$PARLEY_GROUP/$PARLEY_KEY/$PARLEY_ATTEMPT"
		case "$x $PARLEY_ATTEMPT" in
		"once 1") exit 1 ;;
		poison*) echo first >&2; echo "no luck" >&2; exit 3 ;;
		coded*) exit 65 ;;
		killed*) kill -9 $$ ;;
		esac`
	// Eight attempts: one for each of six messages, and a second one for two of them.
	got := q.ok("consume", "jobs", "--group", "work", "--count", "8", "--concurrency", "4", "--exec", command)
	want := []string{
		"out coded jobs/work//1", "out fine jobs/work/k/1", "out killed jobs/work//1", "out once jobs/work//1", "out once jobs/work//2",
		"out poison jobs/work//1", "out poison jobs/work//2", "out quiet jobs/work//1",
	}
	if diff := cmp.Diff(want, payloads(got.stdout)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.stderr, "attempt 2 failed: exit status 3: no luck") || !strings.Contains(got.stderr, "3 acked, 5 failed") {
		t.Errorf("stderr %s", got.stderr)
	}
	dead := make(map[any]string)
	for _, d := range q.ok("dlq", "jobs", "--json").objects(t) {
		dead[d["payload"]] = fmt.Sprintf("%v: %v (%v)", d["code"], d["reason"], d["attempts"])
	}
	if diff := cmp.Diff(map[any]string{
		"poison": "exit-3: exit status 3: no luck (2)", "coded": "exit-65: exit status 65 (1)", "killed": "signal-9: signal: killed (1)",
	}, dead); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// TestQueueExecJSON checks that --exec with --json writes one object per line with the command's
// result, and the command's own output to stderr.
func TestQueueExecJSON(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.ok("produce", "jobs", "good", "bad")
	got := q.ok("consume", "jobs", "--group", "work", "--count", "2", "--json", "--dead-letter", "--exec", "read -r x; echo seen $x; test $x = good")
	objects := got.objects(t)
	if len(objects) != 2 {
		t.Fatalf("output %q", got.stdout)
	}
	for i, want := range []map[string]any{{"ok": true, "code": "exit-0"}, {"ok": false, "code": "exit-1"}} {
		did, _ := objects[i]["exec"].(map[string]any)
		delete(did, "took_ms")
		if diff := cmp.Diff(want, did); diff != "" {
			t.Errorf("exec of %v (-want +got):\n%s", objects[i]["payload"], diff)
		}
	}
	if !strings.Contains(got.stderr, "seen good\n") || !strings.Contains(got.stderr, "seen bad\n") {
		t.Errorf("stderr %q", got.stderr)
	}
	if got := q.object("stats", "jobs"); got["dead_letters"] != 1.0 {
		t.Errorf("stats %v", got)
	}
}

// TestQueueExecInterrupted interrupts a consumer. The running command must finish, the other
// messages must be released.
func TestQueueExecInterrupted(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.ok("produce", "jobs", "one", "two", "three")
	gate := filepath.Join(t.TempDir(), "gate")
	r := q.start("consume", "jobs", "--group", "work", "--exec", "echo began; until [ -e "+gate+" ]; do sleep 0.01; done; echo done")
	wantText(t, &r.stdout, "began\n")
	r.interrupt()
	writeFile(t, filepath.Dir(gate), "gate", "")
	r.wantEnd(t, 0)
	if got := r.stdout.String(); got != "began\ndone\n" {
		t.Errorf("stdout %q", got)
	}
	rest := q.ok("consume", "jobs", "--group", "work", "--count", "2", "--json").objects(t)
	if fmt.Sprint(field(rest, "payload"), field(rest, "attempt")) != "[two three] [1 1]" {
		t.Errorf("the rest: %v", rest)
	}
}

// TestQueueExecTimeouts checks that commands that take too long are ended with all processes that
// they started: after --exec-timeout, or after --stop-timeout once the consumer is interrupted.
func TestQueueExecTimeouts(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work", "--max-attempts", "1")
	pids := filepath.Join(t.TempDir(), "pids")
	asked := filepath.Join(filepath.Dir(pids), "asked")
	command := "(trap 'touch " + asked + "; exit' TERM; while :; do sleep 0.05; done) & echo $$ $! >>" + pids + "; wait"
	q.ok("produce", "jobs", "slow")
	got := q.ok("consume", "jobs", "--group", "work", "--count", "1", "--exec-timeout", "300ms", "--exec", command)
	if !strings.Contains(got.stderr, "longer than its timeout") {
		t.Errorf("stderr %q", got.stderr)
	}
	wantGone(t, pids, 2)
	if _, err := os.Stat(asked); err != nil {
		t.Errorf("what the command started was not asked to end: %v", err)
	}
	if dead := q.ok("dlq", "jobs").stdout; !strings.Contains(dead, "after 1 attempt") || !strings.Contains(dead, "timeout") {
		t.Errorf("dead letters %q", dead)
	}
	q.ok("produce", "jobs", "slow")
	r := q.start("consume", "jobs", "--group", "work", "--stop-timeout", "100ms", "--exec", command)
	eventually(t, func() error {
		if data, err := os.ReadFile(pids); err != nil || strings.Count(string(data), "\n") < 2 {
			return fmt.Errorf("pids %q, %w", data, err)
		}
		return nil
	})
	interrupted := time.Now()
	r.interrupt()
	r.wantEnd(t, 1)
	// The bound is far more than the command takes to end, and less than the default stop timeout.
	if took := time.Since(interrupted); took > 20*time.Second || !strings.Contains(r.stderr.String(), "still running") {
		t.Errorf("it ended after %s; stderr %q", took, r.stderr.String())
	}
	wantGone(t, pids, 4)
}

// wantGone waits until the n processes whose ids are in the file at path have ended.
func wantGone(t *testing.T, path string, n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Fields(string(data))
	if len(ids) != n {
		t.Fatalf("%d processes, want %d", len(ids), n)
	}
	eventually(t, func() error {
		return errors.Join(slices.Collect(func(yield func(error) bool) {
			for _, id := range ids {
				pid, err := strconv.Atoi(id)
				// A child of this process that has ended was waited for. An orphan may stay a
				// zombie if init does not reap it.
				stat, readErr := os.ReadFile("/proc/" + id + "/stat")
				zombie := readErr == nil && strings.Contains(string(stat), ") Z ")
				if err != nil || (syscall.Kill(pid, 0) == nil && !zombie) {
					yield(fmt.Errorf("process %s is there: %w", id, err))
				}
			}
		})...)
	})
}
