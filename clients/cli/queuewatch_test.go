package cli_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
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
	if fmt.Sprint(field(all, "topic")) != "[jobs other]" || fmt.Sprint(field(all, "length")) != "[4 0]" || fmt.Sprint(field(all, "scheduled")) != "[1 0]" {
		t.Errorf("stats of all: %v", all)
	}
	zero := func(name string, more map[string]any) map[string]any {
		group := map[string]any{"group": name}
		for f := range strings.FieldsSeq("waiting running retrying acked dead cancelled expired trimmed elsewhere retried redelivered " +
			"replayed oldest_age_ms consumers dispatched_partitions") {
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
	work, _ := groups[1].(map[string]any)
	work["dispatched_partitions"] = 0.0 // of a consumer that has just left
	want := []any{zero("audit", map[string]any{"waiting": 4.0}), zero("work", map[string]any{"acked": 4.0})}
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
		`(?m)^jobs  depth 4, 1 scheduled, 0 dead letters, 5 produced$`,
		`(?m)^  GROUP  WAITING  RUNNING  RETRYING  OLDEST +CONSUMERS  DISPATCHED  ACKED  DEAD$`,
		`(?m)^  audit  4        0        0         [0-9.]+m?s +0          0/2         0      0$`,
		`(?m)^  work   0        0        0         - +0          [012]/2         4      0$`,
		`(?m)^  PARTITION  DEPTH  SCHEDULED  PRODUCED  GROUP`,
		`(?m)^  1          \d      [01] +\d +work +0 .* \d +0$`,
		`(?m)^other  depth 0, 0 scheduled, 0 dead letters, 0 produced, no groups$`,
		`(?m)^  0          0      0          0         -$`,
	} {
		if !regexp.MustCompile(form).MatchString(text) {
			t.Errorf("stats have no %s:\n%s", form, text)
		}
	}
}

// vanishing is an admin service with two topics, of which one is deleted when its stats are asked
// for.
type vanishing struct {
	parleyv1connect.UnimplementedAdminServiceHandler
}

func (vanishing) ListTopics(context.Context, *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
	return &parleyv1.ListTopicsResponse{Topics: []*parleyv1.Topic{{Name: "gone"}, {Name: "jobs"}}}, nil
}

func (vanishing) GetTopicStats(_ context.Context, req *parleyv1.GetTopicStatsRequest) (*parleyv1.GetTopicStatsResponse, error) {
	if req.GetTopic() != "gone" {
		return &parleyv1.GetTopicStatsResponse{}, nil
	}
	err := connect.NewError(connect.CodeNotFound, errors.New("deleted"))
	detail, detailErr := connect.NewErrorDetail(&parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND})
	if detailErr != nil {
		return nil, detailErr
	}
	err.AddDetail(detail)
	return nil, err
}

// TestQueueStatsOfDeletedTopic deletes a topic between the list and its stats. The topic must be
// skipped, unless it is an argument.
func TestQueueStatsOfDeletedTopic(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewAdminServiceHandler(vanishing{}))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	q := &queues{t: t, env: map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": "any"}}
	if got := q.ok("stats").stdout; !strings.HasPrefix(got, "jobs  depth 0,") {
		t.Errorf("stats of all say %q", got)
	}
	q.fails(1, []string{"stats", "gone"}, "TOPIC_NOT_FOUND")
}

// TestQueueWatch checks that stats, jobs, consumers and partitions with --watch follow changes,
// also through a restart of the server, until they are interrupted.
func TestQueueWatch(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.ok("produce", "jobs", "1", "2")
	text := q.start("stats", "jobs", "--watch", "--interval", "100ms", "--timeout", "500ms")
	objects := q.start("stats", "jobs", "--watch", "--interval", "100ms", "--json")
	jobs := q.start("jobs", "jobs", "--watch", "--interval", "100ms")
	jobObjects := q.start("jobs", "jobs", "--group", "work", "--state", "running", "--watch", "--interval", "100ms", "--json")
	consumers := q.start("consumers", "jobs", "--watch", "--interval", "100ms", "--json")
	partitions := q.start("partitions", "jobs", "--watch", "--interval", "100ms", "--json")
	wantText(t, &text.stdout, "depth 2,")
	wantText(t, &text.stdout, "  work   2")
	wantText(t, &jobs.stdout, "jobs/work  2\n")
	gate := t.TempDir()
	busy := q.start("consume", "jobs", "--group", "work", "--consumer", "ann", "--exec", "until [ -e "+gate+"/gate ]; do sleep 0.01; done")
	wantText(t, &jobs.stdout, "  ann  ")
	wantText(t, &jobs.stdout, "AGE ")
	wantText(t, &jobObjects.stdout, `"more":false,"jobs":[{"topic":"jobs","message_id":"0-`)
	wantText(t, &consumers.stdout, `"consumer":"ann"`)
	wantText(t, &partitions.stdout, `"cursor":"0-`)
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
	for _, r := range []*running{text, objects, jobs, jobObjects, consumers, partitions} {
		r.interrupt()
		r.wantEnd(t, 0)
	}
	for _, r := range []*running{objects, jobObjects, consumers, partitions} {
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
