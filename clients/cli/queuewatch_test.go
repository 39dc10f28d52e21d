package cli_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestQueueStats checks the counts that stats shows, as text and as JSON, in total and by
// partition.
func TestQueueStats(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	if got := q.ok("stats").stdout; got != "there are no topics\n" {
		t.Errorf("stats of nothing: %q", got)
	}
	q.ok("create", "jobs", "--partitions", "2", "--partitioner", "round-robin", "--group", "audit", "--group", "work")
	q.ok("create", "other", "--partitions", "1")
	q.ok("produce", "jobs", "1", "2", "3", "4")
	q.ok("produce", "jobs", "later", "--delay", "1h")
	q.ok("consume", "jobs", "--group", "work", "--count", "4")
	all := q.ok("stats", "--partitions", "--json").objects(t)
	if fmt.Sprint(field(all, "topic")) != "[jobs other]" || fmt.Sprint(field(all, "length")) != "[4 0]" || fmt.Sprint(field(all, "delayed")) != "[1 0]" {
		t.Errorf("stats of all: %v", all)
	}
	zero := func(name string, more map[string]any) map[string]any {
		group := map[string]any{"group": name}
		for f := range strings.FieldsSeq("unread pending retrying parked acked dead retried replayed trimmed skipped oldest_age_ms " +
			"consumers owned_partitions") {
			group[f] = 0.0
		}
		maps.Copy(group, more)
		return group
	}
	groups, _ := all[0]["groups"].([]any)
	if len(groups) != 2 {
		t.Fatalf("groups %v", groups)
	}
	audit, _ := groups[0].(map[string]any)
	if audit["oldest_age_ms"].(float64) <= 0 {
		t.Errorf("nothing is old: %v", audit)
	}
	audit["oldest_age_ms"] = 0.0
	want := []any{zero("audit", map[string]any{"unread": 4.0}), zero("work", map[string]any{"acked": 4.0})}
	if diff := cmp.Diff(want, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	partitions, _ := all[0]["partitions"].([]any)
	length := 0.0
	for i, one := range partitions {
		p, _ := one.(map[string]any)
		length += p["length"].(float64)
		if p["partition"] != float64(i) || len(p["groups"].([]any)) != 2 {
			t.Errorf("partition %d: %v", i, p)
		}
	}
	if len(partitions) != 2 || length != 4 {
		t.Errorf("partitions %v", partitions)
	}
	text := q.ok("stats", "--partitions").stdout
	for _, form := range []string{
		`(?m)^jobs  depth 4, 1 delayed, 0 dead letters, 5 produced$`,
		`(?m)^  GROUP  LAG  PENDING  RETRYING  PARKED  OLDEST +CONSUMERS  ACKED  DEAD$`,
		`(?m)^  audit  4    0        0         0       [0-9.]+m?s +0 \(0/2\)    0      0$`,
		`(?m)^  work   0    0        0         0       - +0 \(0/2\)    4      0$`,
		`(?m)^  PARTITION  DEPTH  DELAYED  PRODUCED  GROUP`,
		`(?m)^  1          \d      [01] +\d +work +0 .* \d$`,
		`(?m)^other  depth 0, 0 delayed, 0 dead letters, 0 produced, no groups$`,
		`(?m)^  0          0      0        0         -$`,
	} {
		if !regexp.MustCompile(form).MatchString(text) {
			t.Errorf("stats have no %s:\n%s", form, text)
		}
	}
}

// TestQueueStatsOfDeletedTopic deletes a topic between the list and its stats. The topic must be
// skipped, unless it is an argument.
func TestQueueStatsOfDeletedTopic(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("gone", 1)
	s.AddTopic("jobs", 1)
	fault := parleytest.Fault{Err: parleytest.Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND)}
	s.FaultTimes(1, "GetTopicStats", fault)
	if got := run(t, s, "queue", "stats").wantOK(t).stdout; !strings.HasPrefix(got, "jobs  depth 0,") {
		t.Errorf("stats of all say %q", got)
	}
	s.FaultTimes(1, "GetTopicStats", fault)
	if got := run(t, s, "queue", "stats", "gone"); got.code != 1 || !strings.Contains(got.stderr, "TOPIC_NOT_FOUND") {
		t.Errorf("stats of one: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// TestQueueWatch checks that stats, pending and partitions with --watch follow changes, also
// through a restart of the server, until they are interrupted.
func TestQueueWatch(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.ok("produce", "jobs", "1", "2")
	text := q.start("stats", "jobs", "--watch", "--interval", "100ms", "--timeout", "500ms")
	objects := q.start("stats", "jobs", "--watch", "--interval", "100ms", "--json")
	pending := q.start("pending", "jobs", "--watch", "--interval", "100ms")
	pendingObjects := q.start("pending", "jobs", "--group", "work", "--watch", "--interval", "100ms", "--json")
	partitions := q.start("partitions", "jobs", "--watch", "--interval", "100ms", "--json")
	wantText(t, &text.stdout, "depth 2,")
	wantText(t, &text.stdout, "  work   2")
	wantText(t, &pending.stdout, "jobs/work  0 pending")
	gate := t.TempDir()
	busy := q.start("consume", "jobs", "--group", "work", "--consumer", "ann", "--exec", "until [ -e "+gate+"/gate ]; do sleep 0.01; done")
	wantText(t, &pending.stdout, "jobs/work  2 pending")
	wantText(t, &pending.stdout, "PARTITION  ATTEMPT  IDLE")
	wantText(t, &pendingObjects.stdout, `"total":2,"deliveries":[{"topic":"jobs","group":"work","message_id":"0-`)
	wantText(t, &partitions.stdout, `"consumer":"ann"`)
	writeFile(t, gate, "gate", "")
	wantText(t, &text.stdout, "depth 0,")
	wantText(t, &objects.stdout, `"acked":2,`)
	busy.interrupt()
	busy.wantEnd(t, 0)
	q.s.Stop()
	wantText(t, &text.stderr, "retrying")
	q.s.Start()
	q.ok("produce", "jobs", "3", "4", "5")
	wantText(t, &text.stdout, "depth 3,")
	wantText(t, &text.stdout, "5 produced (")
	for _, r := range []*running{text, objects, pending, pendingObjects, partitions} {
		r.interrupt()
		r.wantEnd(t, 0)
	}
	for _, r := range []*running{objects, pendingObjects, partitions} {
		(outcome{stdout: r.stdout.String()}).objects(t)
	}
	got := text.stdout.String()
	if strings.Contains(got, "\x1b") || !regexp.MustCompile(`(?m)^-- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$`).MatchString(got) ||
		!regexp.MustCompile(`(?m)^  work   0 [▁▂▃▄▅▆▇█]{2,}`).MatchString(got) {
		t.Errorf("stats --watch wrote:\n%s", got)
	}
}

// TestQueueWatchEnds checks that the view ends when the topic no longer exists.
func TestQueueWatchEnds(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.fails(1, []string{"stats", "jobs", "--watch"}, "TOPIC_NOT_FOUND")
	q.ok("create", "jobs")
	r := q.start("stats", "jobs", "--watch", "--interval", "100ms")
	wantText(t, &r.stdout, "depth 0,")
	q.ok("delete", "jobs", "--confirm", "jobs")
	r.wantEnd(t, 1)
	if got := r.stderr.String(); !strings.Contains(got, "TOPIC_NOT_FOUND") {
		t.Errorf("stderr %q", got)
	}
}

// TestQueuePending checks that pending lists unsettled deliveries, up to --limit and in either
// order.
func TestQueuePending(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	if q.ok("create", "jobs", "--partitions", "1"); q.ok("pending", "jobs").stdout != "jobs has no groups\n" {
		t.Errorf("pending without groups: %q", q.ok("pending", "jobs").stdout)
	}
	q.ok("group", "create", "jobs", "work")
	q.ok("produce", "jobs", "1", "2", "3")
	gate := t.TempDir()
	busy := q.start("consume", "jobs", "--group", "work", "--consumer", "ann", "--concurrency", "3",
		"--exec", "until [ -e "+gate+"/gate ]; do sleep 0.01; done")
	eventually(t, func() error {
		if n := len(q.ok("pending", "jobs", "--json").objects(t)); n != 3 {
			return fmt.Errorf("%d pending", n)
		}
		return nil
	})
	one := q.object("pending", "jobs", "--limit", "1", "--by", "attempts")
	if one["consumer"] != "ann" || one["attempt"] != 1.0 || one["topic"] != "jobs" || one["group"] != "work" || one["stream_id"] == "" {
		t.Errorf("pending: %v", one)
	}
	got := q.ok("pending", "jobs", "--limit", "2").stdout
	if !strings.HasPrefix(got, "jobs/work  3 pending\n  MESSAGE") || strings.Count(got, "  ann\n") != 2 || !strings.HasSuffix(got, "  and 1 more\n") {
		t.Errorf("pending, as text:\n%s", got)
	}
	writeFile(t, gate, "gate", "")
	eventually(t, func() error {
		if got := q.group("jobs"); got["acked"] != 3.0 {
			return fmt.Errorf("stats %v", got)
		}
		return nil
	})
	busy.interrupt()
	busy.wantEnd(t, 0)
}
