package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func connect(t testing.TB, config Config) *Bus {
	t.Helper()
	if config.Shards == 0 {
		config.Shards = 1
	}
	bus, err := Connect(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
	return bus
}

// sent returns the events of a channel's messages with the seqs `from` to `to`, both included.
func sent(channelID string, from, to int64) []message.Event {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	var events []message.Event
	for seq := from; seq <= to; seq++ {
		events = append(events, message.Event{
			Epoch: "e1", Seq: seq, Count: seq, Time: at,
			Message: message.Message{
				MsgID: fmt.Sprintf("%s-%d", channelID, seq), ChannelID: channelID, Seq: seq, Count: seq, FromID: "auth0|42",
				MsgType: "text", Content: "line\u2028 \u0000 <&> 9007199254740993", ClientMsgID: fmt.Sprint(seq), MsgTime: at, ChangedSeq: seq,
			},
		})
	}
	return events
}

// inbox collects the events passed to a callback of Consume or Subscribe.
type inbox struct {
	mu     sync.Mutex
	events []message.Event
}

func (i *inbox) put(events ...message.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.events = append(i.events, events...)
}

func (i *inbox) all() []message.Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]message.Event(nil), i.events...)
}

// distinct returns the received seqs in the order of their first arrival.
func (i *inbox) distinct() []int64 {
	var seqs []int64
	seen := map[int64]bool{}
	for _, e := range i.all() {
		if !seen[e.Seq] {
			seqs = append(seqs, e.Seq)
		}
		seen[e.Seq] = true
	}
	return seqs
}

func (i *inbox) wait(t testing.TB, want ...int64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if diff := cmp.Diff(want, i.distinct()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// consume passes a shard's events to fn until the test ends or stop is called.
func consume(t testing.TB, bus *Bus, shard int, fn func(context.Context, []message.Event) error) (stop func()) {
	t.Helper()
	return consumeGroup(t, bus.Group(CacheGroup, 0), shard, fn)
}

func consumeGroup(
	t testing.TB, group *Group, shard int, fn func(context.Context, []message.Event) error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- group.Consume(ctx, shard, fn) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Consume returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func into(i *inbox) func(context.Context, []message.Event) error {
	return func(_ context.Context, events []message.Event) error {
		i.put(events...)
		return nil
	}
}

func publish(t testing.TB, bus *Bus, events []message.Event) {
	t.Helper()
	testkit.Eventually(t, patience, func() error { return bus.Publish(t.Context(), events) })
}

func TestEventsReachConsumersAndSubscribers(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), Shards: 4})
	events := sent("room", 1, 3)
	events[1].Message.Metadata = map[string]string{"k": "v"}
	events[2].Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	events = append(events, message.Event{
		Kind: message.KindRecall, Epoch: "e1", Seq: 4, Count: 3, Time: events[0].Time, Message: events[0].Message,
	})
	var consumed, live, other inbox
	shard := message.Shard("room", 4)
	consume(t, bus, shard, into(&consumed))
	consume(t, bus, (shard+1)%4, into(&other))
	cancel, err := bus.Subscribe("room", func(e message.Event) { live.put(e) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, bus, events)
	consumed.wait(t, 1, 2, 3, 4)
	live.wait(t, 1, 2, 3, 4)
	for name, got := range map[string][]message.Event{"consumed": consumed.all(), "live": live.all()} {
		if diff := cmp.Diff(events, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	cancel()
	publish(t, bus, sent("room", 5, 5))
	consumed.wait(t, 1, 2, 3, 4, 5)
	if n := len(live.all()); n != 4 {
		t.Errorf("a cancelled subscription got %d events", n-4)
	}
	if n := len(other.all()); n != 0 {
		t.Errorf("another shard's consumer got %d events", n)
	}
}

func TestChannelIDsWithWildcardsAreRefused(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	for _, id := range []string{"", "*", ">", "a.b", "a..b", "a.", "a b", "a\x00b", "é", "a*", "a\n", "$JS.API", strings.Repeat("x", 129)} {
		if err := bus.Publish(t.Context(), sent(id, 1, 1)); err == nil {
			t.Errorf("published to %q", id)
		}
		if cancel, err := bus.Subscribe(id, func(message.Event) {}, nil); err == nil {
			cancel()
			t.Errorf("subscribed to %q", id)
		}
	}
}

func TestLongestChannelID(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	bus, peer := connect(t, Config{URL: url, Shards: 4}), connect(t, Config{URL: url, Shards: 4})
	id := strings.Repeat("-_aZ09", 21) + "zz"
	if len(id) != 128 {
		t.Fatalf("%d characters", len(id))
	}
	var consumed, live inbox
	consume(t, bus, message.Shard(id, 4), into(&consumed))
	typing := make(chan string, 1)
	if _, err := bus.Subscribe(id, func(e message.Event) { live.put(e) }, func(userID string) { typing <- userID }); err != nil {
		t.Fatal(err)
	}
	events := sent(id, 1, 3)
	publish(t, peer, events)
	publish(t, peer, sent(id[:127], 1, 1))
	consumed.wait(t, 1, 2, 3)
	live.wait(t, 1, 2, 3)
	for name, got := range map[string][]message.Event{"consumed": consumed.all(), "live": live.all()} {
		if diff := cmp.Diff(events, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if err := peer.PublishTyping(id, "ann"); err != nil || <-typing != "ann" {
		t.Errorf("typing: %v", err)
	}
}

func TestFailedBatchIsRetriedBeforeNewerEvents(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), AckWait: 600 * time.Millisecond})
	publish(t, bus, sent("room", 1, 300))
	var calls atomic.Int64
	var got inbox
	consume(t, bus, 0, func(_ context.Context, events []message.Event) error {
		if calls.Add(1) <= 6 { // 50 ms to 1.6 s: longer than AckWait
			return errors.New("not yet")
		}
		got.put(events...)
		return nil
	})
	var want []int64
	for seq := int64(1); seq <= 300; seq++ {
		want = append(want, seq)
	}
	got.wait(t, want...)
	testkit.Eventually(t, patience, func() error { return unacked(t, bus, 0) })
}

// unacked returns an error unless a shard's consumer has delivered all events, and all are
// acknowledged.
func unacked(t testing.TB, bus *Bus, shard int) error {
	t.Helper()
	c, err := bus.js.Consumer(t.Context(), streamName, bus.Group(CacheGroup, 0).consumerName(shard))
	if err != nil {
		return err
	}
	info, err := c.Info(t.Context())
	if err != nil {
		return err
	}
	if info.NumAckPending != 0 || info.NumPending != 0 {
		return fmt.Errorf("%d unconfirmed, %d to come", info.NumAckPending, info.NumPending)
	}
	return nil
}

func TestEventsOfADeadConsumerAreRedelivered(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), AckWait: 300 * time.Millisecond})
	publish(t, bus, sent("room", 1, 3))
	entered := make(chan struct{}, 1)
	stop := consume(t, bus, 0, func(ctx context.Context, _ []message.Event) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	<-entered
	stop()
	var got inbox
	consume(t, bus, 0, into(&got))
	// Those that the first consumer had in hand may come after the others; see Consume.
	testkit.Eventually(t, patience, func() error {
		if seqs := slices.Sorted(slices.Values(got.distinct())); !slices.Equal(seqs, []int64{1, 2, 3}) {
			return fmt.Errorf("got %v", seqs)
		}
		return nil
	})
}

func TestRepeatedPublishIsStoredOnce(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	events := sent("room", 1, 10)
	otherEpoch := sent("room", 1, 1)
	otherEpoch[0].Epoch = "e2"
	for _, batch := range [][]message.Event{events, events, sent("other", 1, 1), otherEpoch} {
		publish(t, bus, batch)
	}
	stream, err := bus.js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 12 {
		t.Errorf("the stream holds %d events, want 12", n)
	}
}

func TestStreamConfiguration(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	stream, err := bus.js.Stream(t.Context(), "message_change_events")
	if err != nil {
		t.Fatal(err)
	}
	got := stream.CachedInfo().Config
	if got.MaxAge != 24*time.Hour || got.MaxBytes != 1<<30 || got.Discard != jetstream.DiscardOld || got.Duplicates != 2*time.Minute || got.Storage != jetstream.FileStorage ||
		got.Replicas != 1 || !cmp.Equal(got.Subjects, []string{"message_change_events.*.*"}) {
		t.Errorf("stream is %+v", got)
	}
}

func TestUndecodableEventIsDropped(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	var consumed, live inbox
	consume(t, bus, 0, into(&consumed))
	if _, err := bus.Subscribe("room", func(e message.Event) { live.put(e) }, nil); err != nil {
		t.Fatal(err)
	}
	foreign, err := bus.encode(&sent("other", 7, 7)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{nil, []byte("{"), []byte(`{"event_type":"drop"}`), foreign.Data} {
		if _, err := bus.js.Publish(t.Context(), "message_change_events.0.room", data); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, bus, sent("room", 1, 1))
	consumed.wait(t, 1)
	live.wait(t, 1)
	testkit.Eventually(t, patience, func() error { return unacked(t, bus, 0) })
}

func TestSlowSubscriptionIsReported(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	told := make(chan struct{}, 1)
	bus.OnReconnect(func() { told <- struct{}{} })
	release := make(chan struct{})
	sub, err := bus.nc.Subscribe("message_change_events.0.room", func(*nats.Msg) { <-release })
	if err != nil {
		t.Fatal(err)
	}
	defer close(release)
	if err := sub.SetPendingLimits(1, 1<<20); err != nil {
		t.Fatal(err)
	}
	publish(t, bus, sent("room", 1, 5))
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("nobody was told of dropped events")
	}
}

// TestFullStreamDropsItsOldestEvents checks that publishing goes on once the stream has its size.
func TestFullStreamDropsItsOldestEvents(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	server := testkit.NATS(t)
	connect(t, Config{URL: server.URL()}) // a stream of an older configuration
	bus := connect(t, Config{URL: server.URL(), MaxBytes: size})
	for seq := int64(1); seq <= 60; seq++ {
		events := sent("room", seq, seq)
		events[0].Message.Content = strings.Repeat("x", 60_000)
		publish(t, bus, events)
	}
	stream, err := bus.js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if st := stream.CachedInfo().State; st.Bytes > size || st.LastSeq != 60 || st.Msgs < 10 || st.Msgs > 17 {
		t.Errorf("the stream is %+v", st)
	}
}

// TestSmallPayloadIsRefused checks that a node does not start on a NATS that would refuse its
// largest events.
func TestSmallPayloadIsRefused(t *testing.T) {
	t.Parallel()
	small := testkit.NATS(t, func(o *server.Options) { o.MaxPayload = minPayload - 1 })
	bus, err := Connect(t.Context(), Config{URL: small.URL(), Shards: 4})
	if !errors.Is(err, errSmallPayload) {
		t.Errorf("Connect returned %v, %v", bus, err)
	}
	enough := testkit.NATS(t, func(o *server.Options) { o.MaxPayload = minPayload })
	bus = connect(t, Config{URL: enough.URL()})
	events := sent("room", 1, 1)
	events[0].Message.Content = strings.Repeat("\x01", 128<<10)
	events[0].Message.Metadata = map[string]string{}
	for i := range 16 {
		events[0].Message.Metadata[fmt.Sprintf("%0*d", 64, i)] = strings.Repeat("\x01", 256)
	}
	publish(t, bus, events)
}

func TestLargestMessageIsDelivered(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	events := sent("room", 1, 1)
	events[0].Message.Content = strings.Repeat("\x01", 128<<10) // six bytes each in JSON
	publish(t, bus, events)
}

func BenchmarkPublishAndConsume(b *testing.B) {
	bus := connect(b, Config{URL: testkit.NATS(b).URL()})
	var n atomic.Int64
	consume(b, bus, 0, func(_ context.Context, events []message.Event) error {
		n.Add(int64(len(events)))
		return nil
	})
	var seq int64
	for b.Loop() {
		if err := bus.Publish(b.Context(), sent("room", seq+1, seq+256)); err != nil {
			b.Fatal(err)
		}
		seq += 256
	}
	published := time.Now()
	testkit.Eventually(b, time.Minute, func() error {
		if n.Load() < seq {
			return fmt.Errorf("%d of %d", n.Load(), seq)
		}
		return nil
	})
	b.ReportMetric(float64(seq)/b.Elapsed().Seconds(), "published/s")
	b.ReportMetric(time.Since(published).Seconds(), "s-behind")
}
