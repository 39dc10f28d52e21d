package natsbus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestGroupsAreIndependent(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), AckWait: 500 * time.Millisecond})
	publish(t, bus, sent("room", 1, 9))
	var cached, moved inbox
	consumeGroup(t, bus.Group(CacheGroup, 0), 0, into(&cached))
	cached.wait(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	testkit.Eventually(t, patience, func() error { return unacked(t, bus, 0) })
	// The second group starts at the beginning, regardless of what the first one has done.
	stop := consumeGroup(t, bus.Group(ChannelGroup, 2), 0, func(_ context.Context, events []message.Event) error {
		if len(events) > 2 {
			t.Errorf("%d events at once", len(events))
		}
		moved.put(events...)
		return nil
	})
	moved.wait(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	stop()
	publish(t, bus, sent("room", 10, 11))
	cached.wait(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	consumeGroup(t, bus.Group(ChannelGroup, 2), 0, into(&moved))
	moved.wait(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	for _, name := range []string{"redis_cache_group_0", "channel_group_0"} {
		if _, err := bus.js.Consumer(t.Context(), streamName, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The next consumer of a shard gets at once the events that the previous one had pulled and not
// handled, not only after AckWait.
func TestUnhandledEventsAreRedeliveredAtOnce(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), AckWait: 10 * patience})
	pulled := make(chan struct{}, 1)
	stop := consumeGroup(t, bus.Group(ChannelGroup, 4), 0, func(ctx context.Context, _ []message.Event) error {
		pulled <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	publish(t, bus, sent("room", 1, 9))
	<-pulled
	// Events in flight to a consumer that stops are delivered again only after AckWait.
	testkit.Eventually(t, patience, func() error {
		c, err := bus.js.Consumer(t.Context(), streamName, bus.Group(ChannelGroup, 4).consumerName(0))
		if err != nil {
			return err
		}
		info, err := c.Info(t.Context())
		if err == nil && info.NumAckPending != 4 {
			err = fmt.Errorf("%d of 4 events were handed out", info.NumAckPending)
		}
		return err
	})
	if err := bus.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	stop()
	var next inbox
	consumeGroup(t, bus.Group(ChannelGroup, 4), 0, into(&next))
	testkit.Eventually(t, patience, func() error {
		if n := len(next.distinct()); n != 9 {
			return fmt.Errorf("%d of 9 events", n)
		}
		return nil
	})
}

func TestLastPublished(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	bus := connect(t, Config{URL: server.URL(), Shards: 4})
	room := message.Shard("room", 4)
	other := "other"
	for i := 0; message.Shard(other, 4) == room; i++ {
		other += "x"
	}
	last := func(shard int) (message.Event, bool) {
		t.Helper()
		e, ok, err := bus.LastPublished(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		return e, ok
	}
	if e, ok := last(room); ok {
		t.Errorf("an empty stream's last event is %+v", e)
	}
	events := sent("room", 1, 7)
	publish(t, bus, events)
	publish(t, bus, sent(other, 1, 9))
	if e, ok := last(room); !ok || !cmp.Equal(e, events[6]) {
		t.Errorf("got %+v %t", e, ok)
	}
	if e, ok := last((message.Shard(other, 4) + 1) % 4); ok && e.Message.ChannelID != "room" {
		t.Errorf("an empty shard's last event is %+v", e)
	}
	subject, err := bus.subjectOf("room")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.js.Publish(t.Context(), subject, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if e, ok := last(room); ok {
		t.Errorf("garbage was read as %+v", e)
	}
	if err := bus.js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if e, ok := last(room); ok {
		t.Errorf("a stream that is gone had %+v", e)
	}
	server.Stop()
	testkit.Eventually(t, patience, func() error {
		if bus.nc.IsConnected() {
			return errors.New("still connected")
		}
		return nil
	})
	// An error must not be reported as an empty stream.
	if _, _, err := bus.LastPublished(t.Context(), room); err == nil {
		t.Error("no error without NATS")
	}
}
