package presence

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/stream"
)

// TestUnwatchedChannelIsNotRead checks that the members of a channel are not read any further once
// nobody waits for them, whose turn ends with it.
func TestUnwatchedChannelIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		many := make([]string, 50*memberPage)
		for i := range many {
			many[i] = fmt.Sprintf("%06d", i)
		}
		x.members.channels["many"] = many
		x.members.set("c", "ada")
		x.members.hook = func(int) { time.Sleep(100 * time.Millisecond) }
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		w := x.watcher()
		if _, err := x.v.watchChannel(ctx, w.s, ChannelRef{ID: "many"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("watch: %v", err)
		}
		began := time.Now()
		if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); err != nil || time.Since(began) > 150*time.Millisecond {
			t.Errorf("the next watch: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute / 2)
		synctest.Wait()
		if x.members.reads > 6 {
			t.Errorf("%d reads", x.members.reads)
		}
		x.v.forget(w.s)
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestTurns checks that one subject who watches many channels does not hold up another one, and
// that each watch of a stream begins although the others wait for their turn.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		x.members.hook = func(int) { time.Sleep(time.Second) }
		streamOf := func(subject string) *Stream {
			return newStream(stream.Identity{ID: subject, Subject: subject}, 15*time.Second, false)
		}
		greedy, modest := streamOf("mallory"), streamOf("bob")
		results := make(chan error)
		for i := range 20 {
			go func() {
				_, err := x.v.watchChannel(t.Context(), greedy, ChannelRef{ID: fmt.Sprint("c", i)})
				results <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		if _, err := x.v.watchChannel(t.Context(), modest, ChannelRef{ID: "c19"}); err != nil || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("watch: %v after %v", err, time.Since(began))
		}
		for range 20 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 21*time.Second {
			t.Errorf("all channels took %v", took)
		}
		x.v.forget(greedy)
		x.v.forget(modest)
		if leftovers(x.v) != nil || len(x.v.turns) > 0 {
			t.Errorf("left: %v, %d turns", leftovers(x.v), len(x.v.turns))
		}
	})
}
