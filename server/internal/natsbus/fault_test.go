package natsbus

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestBusSurvivesNATSOutage(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	bus := connect(t, Config{URL: server.URL(), AckWait: time.Second})
	var consumed, live inbox
	consume(t, bus, 0, into(&consumed))
	if _, err := bus.Subscribe("room", func(e message.Event) { live.put(e) }, nil); err != nil {
		t.Fatal(err)
	}
	back := make(chan struct{}, 8)
	bus.OnReconnect(func() { back <- struct{}{} })
	publish(t, bus, sent("room", 1, 2))
	consumed.wait(t, 1, 2)

	for round := range int64(2) {
		server.Stop()
		testkit.Eventually(t, patience, func() error {
			if bus.nc.IsConnected() || bus.Ping(t.Context()) == nil {
				return errors.New("still connected")
			}
			return nil
		})
		began := time.Now()
		if err := bus.Publish(t.Context(), sent("room", 100+round, 100+round)); err == nil {
			t.Error("published without a server")
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the refusal took %s", took)
		}
		server.Start()
		<-back
		publish(t, bus, sent("room", 3+round, 3+round))
		if err := bus.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// Events refused while NATS was away must not be buffered, because their text may have been
	// recalled.
	consumed.wait(t, 1, 2, 3, 4)
	live.wait(t, 1, 2, 3, 4)
}

func TestConnectWithoutNATS(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	url := server.URL()
	server.Stop()
	bus := connect(t, Config{URL: url, ConnectWait: 50 * time.Millisecond})
	var consumed, live inbox
	consume(t, bus, 0, into(&consumed))
	if _, err := bus.Subscribe("room", func(e message.Event) { live.put(e) }, nil); err != nil {
		t.Fatal(err)
	}
	server.Start()
	testkit.Eventually(t, patience, func() error { return bus.Ping(t.Context()) })
	publish(t, bus, sent("room", 1, 1))
	consumed.wait(t, 1)
	live.wait(t, 1)
}

func TestConnectRefusesInvalidConfig(t *testing.T) {
	t.Parallel()
	if _, err := Connect(t.Context(), Config{URL: "nats://127.0.0.1:1"}); err == nil {
		t.Error("connected without shards")
	}
	if _, err := Connect(t.Context(), Config{URL: "nats://127.0.0.1:notaport", Shards: 1}); err == nil {
		t.Error("connected to a bad URL")
	}
}

func TestDeletedStreamAndConsumerAreRecreated(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL(), AckWait: time.Second})
	var consumed inbox
	consume(t, bus, 0, into(&consumed))
	publish(t, bus, sent("room", 1, 1))
	consumed.wait(t, 1)
	if err := bus.js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	publish(t, bus, sent("room", 2, 2))
	consumed.wait(t, 1, 2)
	if err := bus.js.DeleteConsumer(t.Context(), streamName, bus.Group(CacheGroup, 0).consumerName(0)); err != nil {
		t.Fatal(err)
	}
	publish(t, bus, sent("room", 3, 3))
	consumed.wait(t, 1, 2, 3)
}

func TestPublishFailsWithoutAStream(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	if err := bus.js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if err := bus.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := bus.CheckStream(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the check of a stream that is gone: %v", err)
	}
	if err := bus.Publish(t.Context(), sent("room", 1, 1)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Fatalf("got %v", err)
	}
	publish(t, bus, sent("room", 1, 1))
	if err := bus.CheckStream(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEmbeddedServerKeepsItsStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for seq := int64(1); seq <= 2; seq++ {
		server := NewEmbedded(dir, nil)
		lifecycletest.Start(t, server)
		bus := connect(t, Config{Server: server})
		publish(t, bus, sent("room", seq, seq))
		if seq == 2 {
			var got inbox
			stop := consume(t, bus, 0, into(&got))
			got.wait(t, 1, 2)
			stop()
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
		lifecycletest.Stop(t, server)
	}
}

func TestEmbeddedServerStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*Embedded](t, func(t *testing.T) *Embedded { return NewEmbedded(t.TempDir(), slog.New(slog.DiscardHandler)) })
}

// A stream of another store is refused, because two fleets on one NATS would acknowledge each
// other's events.
func TestStreamOfAnotherStoreIsRefused(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	ours := connect(t, Config{URL: server.URL(), Store: "ours"})
	publish(t, ours, sent("room", 1, 1))
	if _, err := Connect(t.Context(), Config{URL: server.URL(), Shards: 1, Store: "theirs"}); !errors.Is(err, errForeignStream) {
		t.Errorf("connecting for another store: %v", err)
	}
	again := connect(t, Config{URL: server.URL(), Store: "ours"})
	var got inbox
	consume(t, again, 0, into(&got))
	got.wait(t, 1)
}
