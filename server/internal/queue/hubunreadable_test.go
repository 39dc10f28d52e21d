package queue_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// An entry that can't be read becomes a dead letter with a reason, and what lies behind it is delivered. So does one that a
// node from before, which could not set it aside, has left pending.
func TestUnreadableIsSetAside(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	ctx, client := t.Context(), r.server.Client(t)
	const stream = "stream:topic:{jobs:0}"
	foul := func() {
		t.Helper()
		r.must(client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"d", "\xff\xff"}}).Err())
		r.must(client.HIncrBy(ctx, stream+":meta", "produced", 1).Err())
	}
	foul()
	r.must(client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "e1", Streams: []string{stream, ">"}}).Err())
	r.produce(0, "k", 0, 2)
	foul()
	r.produce(0, "k", 2, 1)
	c := r.open(r.hub(nil))
	for i := range 3 {
		d := c.wait(i + 1)[i]
		if string(d.Payload) != fmt.Sprint(i) {
			t.Fatalf("delivery %d holds %q", i, d.Payload)
		}
	}
	testkit.Eventually(t, soon, func() error {
		if g := r.groupStats(0); g.Dead != 2 || g.Pending != 3 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	letters, _, _, err := r.store.DeadLetters(ctx, r.topic.Ref(0), "", queue.EntryID{}, 10)
	r.must(err)
	if len(letters) != 2 || letters[0].Reason != "the stored message can't be read" || string(letters[0].Payload) != "\xff\xff" {
		t.Errorf("dead letters %+v", letters)
	}
}
