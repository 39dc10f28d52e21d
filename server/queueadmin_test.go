package server_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestDefaultTopicAddsPartitions checks that a topic without settings can grow: most keys stay in
// their partitions, and the rest move to new ones.
func TestDefaultTopicAddsPartitions(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	ctx, admin, queues := t.Context(), g.QueueAdmin(g.Token), g.Queues(g.Token)
	made, err := admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}})
	if err != nil || made.GetTopic().GetPartitioner() != parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH || made.GetTopic().GetPartitions() != 8 {
		t.Fatalf("created %v, %v", made, err)
	}
	const keys = 90
	produced := func() (at []int32) {
		t.Helper()
		r := &parleyv1.ProduceRequest{Topic: "jobs"}
		for i := range keys {
			r.Messages = append(r.Messages, &parleyv1.QueueMessage{Key: fmt.Sprint("key-", i)})
		}
		res, err := queues.Produce(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.GetResults() {
			at = append(at, r.GetProduced().GetPartition())
		}
		return at
	}
	before := produced()
	grown, err := admin.UpdateTopic(ctx, &parleyv1.UpdateTopicRequest{
		Topic: &parleyv1.Topic{Name: "jobs", Partitions: 9}, UpdateMask: maskOf("partitions"),
	})
	if err != nil || grown.GetTopic().GetPartitions() != 9 {
		t.Fatalf("grown %v, %v", grown, err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { // settings take effect within two seconds
		after, moved := produced(), 0
		for i := range after {
			if after[i] != before[i] {
				moved++
				if after[i] != 8 {
					t.Fatalf("key %d moved from %d to %d", i, before[i], after[i])
				}
			}
		}
		if moved == 0 || moved > keys/3 {
			return fmt.Errorf("%d of %d keys moved", moved, keys)
		}
		return nil
	})
}

// TestPauseIsPerTopicAndGroup checks that producing to a topic and delivering to one of its groups
// are paused and resumed independently, and that producers are told to retry while a topic is
// paused.
func TestPauseIsPerTopicAndGroup(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.produce("jobs", 1)
	ctx, admin, queues := t.Context(), g.QueueAdmin(g.Token), g.Queues(g.Token)
	if err := callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: slowGroup("h")})); err != nil {
		t.Fatal(err)
	}
	pauseTopic := func(paused bool) {
		t.Helper()
		r, err := admin.SetTopicPaused(ctx, &parleyv1.SetTopicPausedRequest{Topic: "jobs", Paused: paused})
		if err != nil || r.GetTopic().GetPaused() != paused {
			t.Fatalf("%v, %v", r, err)
		}
	}
	pauseGroup := func(paused bool) {
		t.Helper()
		r, err := admin.SetGroupPaused(ctx, &parleyv1.SetGroupPausedRequest{Topic: "jobs", Group: "g", Paused: paused})
		if err != nil || r.GetGroup().GetPaused() != paused {
			t.Fatalf("%v, %v", r, err)
		}
	}
	produceOne := func() error {
		return callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{}}}))
	}
	both := consuming("jobs")
	c := g.consumes(g.Token, nil, both)
	both.Group = "h"
	other := g.consumes(g.Token, nil, both)
	c.await(1)
	pauseTopic(true)
	err := produceOne()
	if d := detailOf(t, err); connect.CodeOf(err) != connect.CodeFailedPrecondition || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED || !d.GetRetryable() {
		t.Errorf("produce to a paused topic: %v, %v", err, d)
	}
	pauseGroup(true)
	pauseTopic(false)
	testkit.Eventually(t, 10*time.Second, func() error { // Receive knows of the pause too
		r, err := queues.Receive(ctx, &parleyv1.ReceiveRequest{Topic: "jobs", Group: "g"})
		if len(r.GetDeliveries()) > 0 {
			t.Fatalf("received %v", r)
		}
		return err
	})
	if err := produceOne(); err != nil {
		t.Errorf("produce after a resume of that: %v", err)
	}
	other.await(2)
	if w := g.groupStats("jobs"); w.GetWaiting() != 1 || w.GetRunning() != 1 {
		t.Errorf("the paused group: %v", w)
	}
	pauseTopic(true)
	pauseGroup(false)
	c.await(2) // produced while the group was paused
	pauseTopic(false)
	if err := produceOne(); err != nil {
		t.Error(err)
	}
	c.await(3)
}

// TestNonRetryableCodeCreatesDeadLetter checks that a retry with one of the group's non-retryable
// codes creates a dead letter even if attempts are left.
func TestNonRetryableCodeCreatesDeadLetter(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	ctx, admin, queues := t.Context(), g.QueueAdmin(g.Token), g.Queues(g.Token)
	g.produce("jobs", 3)
	if err := callErr(admin.UpdateGroup(ctx, &parleyv1.UpdateGroupRequest{
		Topic: "jobs", Group: &parleyv1.Group{Name: "g", Retry: &parleyv1.RetryPolicy{NonRetryableCodes: []string{"E1"}}}, UpdateMask: maskOf("retry"),
	})); err != nil {
		t.Fatal(err)
	}
	c := g.consumes(g.Token, nil, consuming("jobs"))
	held := c.await(3)
	final, again := retried(held[0].GetToken(), time.Hour), retried(held[1].GetToken(), time.Hour)
	final.Code, final.Reason, again.Code = "E1", "no use", "E2"
	res, err := queues.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: []*parleyv1.NackItem{final, again, {Token: held[2].GetToken()}}})
	if err != nil || res.GetResults()[0].GetError() != nil || res.GetResults()[1].GetError() != nil ||
		itemSummary(res.GetResults()[2].GetError()) != `invalid_argument INVALID_FIELD "items[2].outcome" 0` {
		t.Fatalf("nacked %v, %v", res, err)
	}
	if w := g.groupStats("jobs"); w.GetDead() != 1 || w.GetRetrying() != 1 || w.GetRunning() != 1 {
		t.Errorf("%v", w)
	}
	letters, err := admin.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: "jobs"})
	if l := letters.GetDeadLetters(); err != nil || len(l) != 1 || l[0].GetCode() != "E1" || l[0].GetReason() != "no use" || l[0].GetMessageId() != held[0].GetMessageId() {
		t.Errorf("dead letters %v, %v", l, err)
	}
	// Extending all of the session's deliveries excludes those that it no longer holds.
	extended, err := queues.Extend(ctx, &parleyv1.ExtendRequest{SessionId: c.sessionID, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}})
	if err != nil || len(extended.GetResults()) > 0 {
		t.Errorf("extended %v, %v", extended, err)
	}
}

// TestDeadLetterSelection checks that each selection of dead letters affects exactly the letters
// that it names.
func TestDeadLetterSelection(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	ctx, admin, queues := t.Context(), g.QueueAdmin(g.Token), g.Queues(g.Token)
	g.produce("jobs", 4)
	if err := callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: slowGroup("h")})); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"g", "h"} {
		r := consuming("jobs")
		r.Group = group
		c := g.consumes(g.Token, nil, r)
		var items []*parleyv1.NackItem
		for _, d := range c.await(4) {
			items = append(items, dead(d.GetToken()))
		}
		if err := callErr(queues.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: items})); err != nil {
			t.Fatal(err)
		}
		if err := callErr(queues.Leave(ctx, &parleyv1.LeaveRequest{SessionId: c.sessionID})); err != nil {
			t.Fatal(err)
		}
	}
	letters := func(group string) (ids []string) {
		t.Helper()
		res, err := admin.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: "jobs", Group: group})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range res.GetDeadLetters() {
			ids = append(ids, l.GetDeadLetterId())
		}
		return ids
	}
	left := func(what string, ofG, ofH int) {
		t.Helper()
		if a, b := len(letters("g")), len(letters("h")); a != ofG || b != ofH {
			t.Errorf("after %s g has %d dead letters and h %d, want %d and %d", what, a, b, ofG, ofH)
		}
	}
	purge := func(s *parleyv1.DeadLetterSelection, want int64) {
		t.Helper()
		res, err := admin.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: s, Confirm: "jobs"})
		if err != nil || res.GetPurged() != want {
			t.Errorf("purged %v, %v, want %d", res, err, want)
		}
	}
	replay := func(s *parleyv1.DeadLetterSelection, want int64) {
		t.Helper()
		res, err := admin.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: s})
		if err != nil || res.GetReplayed() != want || res.GetMore() {
			t.Errorf("replayed %v, %v, want %d", res, err, want)
		}
	}
	left("the start", 4, 4)
	ids := letters("g")
	purge(lettersBy(ids[1], ids[1]), 1)
	if slices.Contains(letters("g"), ids[1]) {
		t.Error("a letter that was not selected was purged")
	}
	left("a purge of one id", 3, 4)
	replay(lettersBy(ids[0]), 1)
	left("a replay of one id", 2, 4)
	purge(lettersOf("h"), 4)
	left("a purge of h", 2, 0)
	replay(lettersOf("g"), 2)
	left("a replay of g", 0, 0)

	c := g.consumes(g.Token, nil, consuming("jobs"))
	var items []*parleyv1.NackItem
	for _, d := range c.await(3) { // the replayed messages
		items = append(items, dead(d.GetToken()))
	}
	if err := callErr(queues.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: items})); err != nil {
		t.Fatal(err)
	}
	replay(lettersBy(letters("g")[0]), 1)
	purge(allLetters(), 2)
	left("a purge of all", 0, 0)
}
