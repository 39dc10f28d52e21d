package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// bury creates dead letters of one group with these payloads.
func (q *queues) bury(topic, group string, payloads ...string) {
	q.t.Helper()
	q.ok(append([]string{"produce", topic}, payloads...)...)
	q.ok("consume", topic, "--group", group, "--count", fmt.Sprint(len(payloads)), "--nack", "--dead-letter", "--reason", "poison\x1b[2J")
}

// TestQueueReplay replays dead letters by id, of a group, all, a few, and to another topic. Each
// must be replayed once.
func TestQueueReplay(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "2", "--group", "work")
	if got := q.ok("dlq", "jobs").stdout; got != "" {
		t.Errorf("dead letters of nothing: %q", got)
	}
	if got := q.ok("dlq", "replay", "jobs", "--group", "work").stdout; got != "jobs: 0 dead letters replayed\n" {
		t.Errorf("a replay of nothing says %q", got)
	}
	for _, args := range [][]string{{"dlq", "jobs"}, {"dlq", "replay", "jobs"}, {"dlq", "purge", "jobs", "--confirm", "jobs"}} {
		q.fails(1, append(args, "--group", "typo"), "no such consumer group")
	}
	q.bury("jobs", "work", "a", "b", "c", "d", "e")
	text := q.ok("dlq", "jobs", "--limit", "2").stdout
	if strings.Count(text, "\n") != 2 || !strings.Contains(text, ` work after 1 attempt: poison\x1b[2J  `) {
		t.Errorf("dead letters, as text: %q", text)
	}
	ids := make(map[string]string)
	for _, d := range q.ok("dlq", "jobs", "--json").objects(t) {
		ids[fmt.Sprint(d["payload"])] = fmt.Sprint(d["dead_letter_id"])
	}
	if got := q.object("dlq", "replay", "jobs", ids["a"], ids["b"]); fmt.Sprint(got) != "map[event:replayed replayed:2 topic:jobs]" {
		t.Errorf("replay says %v", got)
	}
	if got := q.ok("dlq", "replay", "jobs", ids["a"], ids["b"]).stdout; got != "jobs: 0 dead letters replayed\n" {
		t.Errorf("a second replay says %q", got)
	}
	if got := payloads(q.ok("consume", "jobs", "--group", "work", "--count", "2").stdout); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q came back", got)
	}
	q.fails(1, []string{"dlq", "replay", "jobs", "--all", "--to", "other"}, "TOPIC_NOT_FOUND")
	q.ok("create", "other", "--group", "redo")
	if got := q.ok("dlq", "replay", "jobs", ids["c"], "--to", "other").stdout; got != "jobs: 1 dead letter replayed to other\n" {
		t.Errorf("replay elsewhere says %q", got)
	}
	if got := q.ok("consume", "other", "--group", "redo", "--count", "1", "--json").objects(t); got[0]["payload"] != "c" || got[0]["attempt"] != 1.0 {
		t.Errorf("replayed elsewhere: %v", got)
	}
	if got := q.object("dlq", "replay", "jobs", "--all", "--limit", "1"); got["replayed"] != 1.0 {
		t.Errorf("replay of one says %v", got)
	}
	if got := q.ok("dlq", "replay", "jobs", "--group", "work").stdout; got != "jobs: 1 dead letter replayed\n" {
		t.Errorf("replay of the rest says %q", got)
	}
	if got := payloads(q.ok("consume", "jobs", "--group", "work", "--count", "2").stdout); !slices.Equal(got, []string{"d", "e"}) {
		t.Errorf("%q came back", got)
	}
	if got := q.object("stats", "jobs"); got["dead_letters"] != 0.0 {
		t.Errorf("stats %v", got)
	}
}

// TestQueuePurge checks that dlq purge deletes dead letters by id, of a group, and all.
func TestQueuePurge(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--group", "work")
	q.bury("jobs", "work", "a", "b")
	if got := q.ok("dlq", "jobs", "--code", "other").stdout; got != "" {
		t.Errorf("dead letters with another code: %q", got)
	}
	q.ok("group", "create", "jobs", "audit", "--from", "end")
	q.bury("jobs", "audit", "c", "d")
	if got := field(q.ok("dlq", "jobs", "--group", "work", "--json").objects(t), "payload"); fmt.Sprint(got) != "[b a]" {
		t.Errorf("dead letters of one group: %v", got)
	}
	first := q.ok("dlq", "jobs", "--limit", "1", "--json").objects(t)[0]
	q.fails(2, []string{"dlq", "purge", "jobs", "--all", "--confirm", "job"}, "--confirm jobs")
	got := q.object("dlq", "purge", "jobs", fmt.Sprint(first["dead_letter_id"]), "--confirm", "jobs")
	if fmt.Sprint(got) != "map[event:purged purged:1 topic:jobs]" {
		t.Errorf("purge says %v", got)
	}
	if got := q.ok("dlq", "purge", "jobs", "--group", "work", "--confirm", "jobs").stdout; got != "jobs: 2 dead letters purged\n" {
		t.Errorf("purge says %q", got)
	}
	if got := field(q.ok("dlq", "jobs", "--json").objects(t), "payload"); fmt.Sprint(got) != "[c]" {
		t.Errorf("what is left: %v", got)
	}
	if got := q.ok("dlq", "replay", "jobs", "--group", "work").stdout; got != "jobs: 0 dead letters replayed\n" {
		t.Errorf("replay of a group without dead letters says %q", got)
	}
	if got := q.ok("dlq", "purge", "jobs", "--all", "--confirm", "jobs").stdout; got != "jobs: 1 dead letter purged\n" {
		t.Errorf("purge of all says %q", got)
	}
}

// TestQueueTrim checks that trim removes settled messages, and unsettled ones only with --force.
func TestQueueTrim(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1", "--retention", "1d", "--group", "work")
	q.ok("produce", "jobs", "1", "2", "3", "4")
	q.ok("consume", "jobs", "--group", "work", "--count", "2")
	if got := q.ok("trim", "jobs", "--older-than", "1h").stdout; got != "jobs: 0 messages removed\n" {
		t.Errorf("trim by age says %q", got)
	}
	if got := q.object("trim", "jobs", "--keep", "1"); fmt.Sprint(got) != "map[event:trimmed lost:0 removed:2 topic:jobs]" {
		t.Errorf("trim says %v", got)
	}
	if got := q.ok("trim", "jobs", "--keep", "1", "--force").stdout; got != "jobs: 1 message removed; groups lost 1 that they had not settled\n" {
		t.Errorf("trim by force says %q", got)
	}
	if got := q.ok("trim", "jobs", "--older-than", "0s", "--force", "--json").objects(t)[0]; got["removed"] != 1.0 || got["lost"] != 1.0 {
		t.Errorf("trim of everything says %v", got)
	}
}
