package cli_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hold starts a consumer of one group that works until the returned function is called.
func (q *queues) hold(topic, group, consumer string, concurrency int) (r *running, release func()) {
	q.t.Helper()
	gate := q.t.TempDir()
	r = q.start("consume", topic, "--group", group, "--consumer", consumer, "--concurrency", fmt.Sprint(concurrency),
		"--exec", "until [ -e "+gate+"/gate ]; do sleep 0.01; done")
	return r, func() { writeFile(q.t, gate, "gate", "") }
}

// TestQueueJobs checks that jobs lists messages by state and key, up to --limit, and that job shows
// one of them.
func TestQueueJobs(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1")
	if got := q.ok("jobs", "jobs").stdout; got != "jobs  none\n" {
		t.Errorf("jobs without groups: %q", got)
	}
	q.ok("group", "create", "jobs", "audit")
	q.ok("group", "create", "jobs", "work")
	q.ok("produce", "jobs", "failing", "--key", "k", "--header", "h=1")
	q.ok("consume", "jobs", "--group", "work", "--count", "1", "--nack", "--retry-after", "1h", "--code", "smtp", "--reason", "no\tmail")
	q.ok("produce", "jobs", "1", "2", "3")
	q.ok("produce", "jobs", "later", "--delay", "1d")
	busy, release := q.hold("jobs", "work", "ann", 2)
	states := func() []any {
		var all []any
		for _, j := range q.ok("jobs", "jobs", "--group", "work", "--json").objects(t) {
			groups, _ := j["groups"].([]any)
			all = append(all, groups[0].(map[string]any)["state"])
		}
		return all
	}
	eventually(t, func() error {
		if got := fmt.Sprint(states()); !strings.HasPrefix(got, "[retrying running running ") || !strings.HasSuffix(got, " scheduled]") {
			return fmt.Errorf("states %s", got)
		}
		return nil
	})
	running := q.ok("jobs", "jobs", "--group", "work", "--state", "running", "--json", "--full").objects(t)
	if len(running) != 2 || running[0]["payload"] != "1" || running[0]["payload_bytes"] != 1.0 {
		t.Fatalf("running: %v", running)
	}
	groups, _ := running[0]["groups"].([]any)
	one, _ := groups[0].(map[string]any)
	since, err := time.Parse(time.RFC3339, fmt.Sprint(one["since_time"]))
	if err != nil || one["consumer"] != "ann" || one["group"] != "work" || one["deliveries"] != 1.0 || time.Since(since) > time.Hour {
		t.Errorf("running: %v, %v", one, err)
	}
	retrying := q.object("jobs", "jobs", "--group", "work", "--state", "retrying", "--key", "k")
	if retrying["payload"] != nil || retrying["key"] != "k" {
		t.Errorf("retrying: %v", retrying)
	}
	text := q.ok("jobs", "jobs", "--limit", "2").stdout
	for _, form := range []string{
		`(?m)^jobs/audit  the first 2$`, `(?m)^jobs/work  the first 2$`, `(?m)^  0-\d+ +[0-9.]+m?s +waiting +- +0 +- +- +k$`,
		`(?m)^  0-\d+ +[0-9.]+m?s +retrying +[0-9.]+m?s +1 +in (1h|59m.*s) +- +k +\[smtp\] no\\tmail$`,
	} {
		if !regexp.MustCompile(form).MatchString(text) {
			t.Errorf("jobs have no %s:\n%s", form, text)
		}
	}
	if got := q.ok("jobs", "jobs", "--state", "scheduled").stdout; !strings.HasPrefix(got, "jobs  1 scheduled\n") || !regexp.MustCompile(`in (1d|23h)`).MatchString(got) {
		t.Errorf("scheduled:\n%s", got)
	}
	id := fmt.Sprint(retrying["message_id"])
	shown := q.ok("job", "jobs", id).stdout
	for _, form := range []string{
		`(?m)^jobs: 0-\d+$`, `(?m)^  key +k$`, `(?m)^  header h +1$`, `(?m)^  payload +7 bytes: failing$`, `(?m)^  audit +waiting +0 `,
		`(?m)^  work +retrying +1 +1 .* in (1h|59m.*s) .*\[smtp\] no\\tmail$`,
	} {
		if !regexp.MustCompile(form).MatchString(shown) {
			t.Errorf("job has no %s:\n%s", form, shown)
		}
	}
	if got := q.object("job", "jobs", id); got["payload"] != "failing" || len(got["groups"].([]any)) != 2 {
		t.Errorf("job: %v", got)
	}
	q.fails(1, []string{"job", "jobs", "0-7"}, "MESSAGE_NOT_FOUND")
	q.fails(1, []string{"jobs", "jobs", "--group", "none"}, "GROUP_NOT_FOUND")
	q.fails(1, []string{"cancel", "jobs", fmt.Sprint(running[0]["message_id"])}, "MESSAGE_RUNNING")
	release()
	busy.interrupt()
	busy.wantEnd(t, 0)
}

// TestQueueRetry checks that retry makes messages due now that wait for a retry: by id, and all.
func TestQueueRetry(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "2", "--group", "work")
	q.ok("produce", "jobs", "a", "b", "c")
	q.ok("consume", "jobs", "--group", "work", "--count", "3", "--nack", "--retry-after", "1h")
	retrying := q.ok("jobs", "jobs", "--state", "retrying", "--json").objects(t)
	if len(retrying) != 3 {
		t.Fatalf("retrying: %v", retrying)
	}
	if got := q.ok("retry", "jobs", fmt.Sprint(retrying[0]["message_id"]), "0-7", "--group", "work").stdout; got != "jobs: 1 message is due now\n" {
		t.Errorf("retry says %q", got)
	}
	if got := q.object("retry", "jobs", "--group", "work", "--all"); fmt.Sprint(got) != "map[event:retried group:work retried:2 topic:jobs]" {
		t.Errorf("retry of all says %v", got)
	}
	if got := field(q.ok("consume", "jobs", "--group", "work", "--count", "3", "--json").objects(t), "attempt"); fmt.Sprint(got) != "[2 2 2]" {
		t.Errorf("attempts %v", got)
	}
	q.fails(1, []string{"retry", "jobs", "0-7", "--group", "none"}, "GROUP_NOT_FOUND")
}

// TestQueueConsumers checks that consumers shows who works on what, and partitions which node
// dispatches.
func TestQueueConsumers(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	if got := q.ok("consumers", "jobs", "--group", "work").stdout; got != "nobody consumes jobs as work\n" {
		t.Errorf("consumers of nobody: %q", got)
	}
	if got := q.ok("partitions", "jobs").stdout; !strings.Contains(got, "nobody") {
		t.Errorf("partitions without a consumer:\n%s", got)
	}
	made := q.object("produce", "jobs", "1")
	busy, release := q.hold("jobs", "work", "ann", 3)
	eventually(t, func() error {
		if all := q.ok("consumers", "jobs", "--json").objects(t); len(all) != 1 || all[0]["running"] != 1.0 {
			return fmt.Errorf("consumers %v", all)
		}
		return nil
	})
	one := q.object("consumers", "jobs")
	if one["consumer"] != "ann" || one["group"] != "work" || one["state"] != "attached" || one["concurrency"] != 3.0 ||
		one["oldest_message_id"] != made["message_id"] || one["oldest_time"] == "" || one["subject"] == "" {
		t.Errorf("consumers: %v", one)
	}
	form := `(?m)^work +ann +attached +[0-9.]+m?s +1/3 +1 +` + fmt.Sprint(made["message_id"]) + ` +[0-9.]+m?s +` + fmt.Sprint(one["node_id"])
	if got := q.ok("consumers", "jobs").stdout; !regexp.MustCompile(form).MatchString(got) {
		t.Errorf("consumers, as text:\n%s", got)
	}
	lease := q.object("partitions", "jobs")
	if lease["group"] != "work" || lease["partition"] != 0.0 || lease["epoch"].(float64) <= 0 || lease["node_id"] != one["node_id"] ||
		lease["sent"] != made["message_id"] {
		t.Errorf("the lease is %v", lease)
	}
	if got := q.ok("partitions", "jobs").stdout; !strings.HasPrefix(got, "PARTITION  GROUP  NODE ") || !strings.Contains(got, fmt.Sprint(one["node_id"])) {
		t.Errorf("partitions, as text:\n%s", got)
	}
	release()
	busy.interrupt()
	busy.wantEnd(t, 0)
	q.fails(1, []string{"consumers", "jobs", "--group", "none"}, "GROUP_NOT_FOUND")
}
