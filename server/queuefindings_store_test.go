package server_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// errorf returns an item's error as an error.
func errorf(e *parleyv1.ItemError) error { return errors.New(e.String()) }

// wantLength returns an error if a topic stores more than most messages.
func wantLength(t *testing.T, r *findingRig, topic string, most int64) error {
	t.Helper()
	stats, err := r.admin.GetTopicStats(t.Context(), &parleyv1.GetTopicStatsRequest{Topic: topic})
	if err == nil && stats.GetTotal().GetLength() > most {
		err = fmt.Errorf("the log holds %d messages", stats.GetTotal().GetLength())
	}
	return err
}

// sent returns how many bytes Redis has sent.
func (r *findingRig) sent() int64 {
	r.t.Helper()
	n, err := strconv.ParseInt(r.infoOf("stats")["total_net_output_bytes"], 10, 64)
	r.must(n, err)
	return n
}

var callsField = regexp.MustCompile(`^calls=(\d+)`)

// commands returns how many commands Redis has executed, those of scripts included.
func (r *findingRig) commands() (all int64) {
	r.t.Helper()
	for name, value := range r.infoOf("commandstats") {
		if m := callsField.FindStringSubmatch(value); strings.HasPrefix(name, "cmdstat_") && m != nil {
			n, err := strconv.ParseInt(m[1], 10, 64)
			r.must(n, err)
			all += n
		}
	}
	return all
}

// TestFinding11 checks that many large messages that are due together are all delivered, in order
// of their due times, while Redis answers others.
func TestFinding11(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 2}, nil)
	const n = 20 * perRequest
	for range n / perRequest {
		messages := plain(perRequest, largestPayload)
		for _, m := range messages {
			m.Due = later(3 * time.Second).GetDue()
		}
		r.put("jobs", messages...)
	}
	r.handles(r.works("jobs", 1000), n)
}

// TestFinding13 checks that the repeats of a producer's requests are recognised without a key in
// Redis for each message.
func TestFinding13(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 2}, nil)
	r.put("jobs", plain(100, 10)...)
	before := len(r.keysOf("*jobs*"))
	req := &parleyv1.ProduceRequest{Topic: "jobs", ProducerId: []byte("0123456789abcdef"), Sequence: 1, Messages: plain(1000, 10)}
	var ids []string
	for i := range 2 {
		res, err := r.queues.Produce(t.Context(), req)
		r.must(res, err)
		for n, result := range res.GetResults() {
			p := result.GetProduced()
			if p.GetDuplicate() != (i == 1) || p.GetMessageId() == "" || i == 1 && p.GetMessageId() != ids[n] {
				t.Fatalf("request %d: message %d is %v", i, n, result)
			}
			ids = append(ids, p.GetMessageId())
		}
	}
	if produced, _ := r.topicCounts("jobs"); produced != 1100 {
		t.Errorf("%d messages are stored", produced)
	}
	if now := len(r.keysOf("*jobs*")); now > before+4 {
		t.Errorf("1,000 messages made %d keys", now-before)
	}
}

// TestFinding14 checks that a topic whose keys are lost in part heals: producers get no final
// error, and consumers, statistics and CreateTopic work.
func TestFinding14(t *testing.T) {
	t.Parallel()
	for name, pattern := range map[string]string{"settings": "*:topic:jobs:meta", "the state of a partition": "*{jobs:0}:*", "a partition": "*{jobs:0}*"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFinding(t)
			r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 2}, nil)
			r.put("jobs", plain(20, 10)...)
			client := r.redis.Client(t)
			all := r.keysOf("*jobs*")
			lost := r.keysOf(pattern)
			if len(lost) == 0 {
				t.Fatalf("no key is %s: there are %q", pattern, all)
			}
			r.must(client.Del(t.Context(), lost...).Result())
			testkit.Eventually(t, 30*time.Second, func() error {
				res, err := r.queues.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: plain(20, 10)})
				if err != nil {
					if d := detailOf(t, err); !d.GetRetryable() {
						t.Fatalf("a final error: %v", err)
					}
					return err
				}
				for _, result := range res.GetResults() {
					if e := result.GetError(); e != nil && !e.GetDetail().GetRetryable() {
						t.Fatalf("a final error: %v", e)
					} else if e != nil {
						return errorf(e)
					}
				}
				return nil
			})
			testkit.Eventually(t, 30*time.Second, func() error {
				return callErr(r.admin.GetTopicStats(t.Context(), &parleyv1.GetTopicStatsRequest{Topic: "jobs"}))
			})
			r.handles(r.works("jobs", 100), 20)
			r.must(r.admin.DeleteTopic(t.Context(), &parleyv1.DeleteTopicRequest{Topic: "jobs", Confirm: "jobs"}))
			r.must(r.admin.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}}))
		})
	}
}

// TestFinding17 checks that what Redis does for a request of Produce does not depend on the number
// of groups.
func TestFinding17(t *testing.T) {
	t.Parallel()
	cost := func(groups int) int64 {
		r := newFinding(t)
		r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
		for i := 1; i < groups; i++ {
			r.must(r.admin.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: slowGroup(fmt.Sprint("g", i))}))
		}
		r.put("jobs", plain(1, 10)...)
		before := r.commands()
		for range 50 {
			r.put("jobs", plain(20, 10)...)
		}
		return r.commands() - before
	}
	one, hundred := cost(1), cost(100)
	t.Logf("50 requests are %d commands with one group and %d with 100", one, hundred)
	if hundred > one+50*100/2 {
		t.Errorf("50 requests are %d commands with one group and %d with 100", one, hundred)
	}
}
