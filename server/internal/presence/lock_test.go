package presence

import (
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/stream"
)

// TestLaggingDoesNotDeadlock checks that the look at the channels of a stream and a change of such
// a channel lock both in the same order.
func TestLaggingDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	s := newStream(stream.Identity{ID: "stream", Subject: "ada"}, time.Hour, false)
	c := &channelWatch{id: "general", members: map[string]memberState{"bob": {}}, streams: map[*Stream]struct{}{s: {}}}
	s.channels[c.id] = &channelSub{watch: c}
	const rounds = 20_000
	var both sync.WaitGroup
	both.Go(func() {
		for i := range rounds {
			c.set(UserState{UserID: "bob", State: State(0).With(Web, i%2 == 0)})
		}
	})
	both.Go(func() {
		var none shardSet
		for range rounds {
			if s.watchesAny(&none) {
				t.Error("the stream watches a shard of none")
			}
		}
	})
	done := make(chan struct{})
	go func() { defer close(done); both.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
}
