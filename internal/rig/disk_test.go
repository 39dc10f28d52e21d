package rig_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/internal/rig"
)

// The tests below hold the table "A full disk" of docs/operations.md: what each engine does when
// its disk is full, and after there is space again.

// engine is an engine with a disk, in which a test stores numbered values.
type engine struct {
	disk *rig.Disk
	// write stores a value of some KiB. It returns nil if the engine acknowledged it.
	write func(ctx context.Context) error
	// count returns the number of values.
	count func(ctx context.Context) (int, error)
	// running reports whether the process exists.
	running func() bool
	restart func(ctx context.Context) error
	// ends is set if the engine's process ends when the disk is full.
	ends bool
	// starts is set if the engine can start while the disk is full.
	starts bool
}

// writeLimit is how long a write may take.
const writeLimit = 2 * time.Second

var value = strings.Repeat("x", 8000)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *engine{"redis": fullRedis, "mongo": fullMongo, "nats": fullNATS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFullDisk(t, start(t))
		})
	}
}

func testFullDisk(t *testing.T, e *engine) {
	t.Helper()
	ctx := within(t, 4*time.Minute)
	write := func() error {
		ctx, cancel := context.WithTimeout(ctx, writeLimit)
		defer cancel()
		return e.write(ctx)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	acked := 1
	if err := e.disk.Fill(); err != nil {
		t.Fatal(err)
	}
	for {
		err := write()
		if err != nil {
			t.Logf("after %d writes: %v", acked, err)
			break
		}
		acked++
		if ctx.Err() != nil {
			t.Fatal("a full disk takes everything")
		}
	}
	awaitEnd(ctx, t, e)
	if e.ends {
		trying, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := e.restart(trying); (err == nil) != e.starts {
			t.Errorf("start with a full disk: %v", err)
		}
	}
	if err := write(); err == nil {
		t.Error("a full disk takes a write")
	}
	awaitEnd(ctx, t, e)
	if err := e.disk.Free(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err == nil {
		t.Error("it takes a write without a restart")
	}
	if err := e.restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Fatalf("after a restart with space: %v", err)
	}
	acked++
	// A write without an answer may be stored.
	if n, err := e.count(ctx); err != nil || n < acked || n > acked+3 {
		t.Errorf("it has %d values, %v; %d were acknowledged", n, err, acked)
	}
}

// awaitEnd waits until the engine's process ends, if it does.
func awaitEnd(ctx context.Context, t *testing.T, e *engine) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for e.ends && e.running() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it goes on running")
		}
	}
	if !e.ends && !e.running() {
		t.Fatal("it has ended")
	}
}

// address returns a free address.
func address(t *testing.T) string {
	t.Helper()
	addrs, err := rig.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

func fullRedis(t *testing.T) *engine {
	t.Helper()
	r, err := rig.StartRedis(within(t, time.Minute), rig.RedisConfig{Dir: t.TempDir(), Addr: address(t), AppendOnly: true, Disk: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	c := r.Client()
	t.Cleanup(func() { _ = c.Close() })
	return &engine{
		disk: r.Disk(), ends: true, starts: true, running: r.Running, restart: r.Restart,
		write: func(ctx context.Context) error { return c.RPush(ctx, "values", value).Err() },
		count: func(ctx context.Context) (int, error) {
			n, err := c.LLen(ctx, "values").Result()
			return int(n), err
		},
	}
}

func fullMongo(t *testing.T) *engine {
	t.Helper()
	m, err := rig.StartMongo(within(t, time.Minute), rig.MongoConfig{
		Dir: t.TempDir(), Addrs: []string{address(t)}, ReplicaSet: "rs0", Disks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	c, err := mongo.Connect(options.Client().ApplyURI(m.URI()).SetRetryWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.WithoutCancel(t.Context())) })
	values := c.Database("rig").Collection("values")
	return &engine{
		disk: m.Disk(0), ends: true, running: func() bool { return m.Running(0) },
		restart: func(ctx context.Context) error { return m.Restart(ctx, 0) },
		write: func(ctx context.Context) error {
			_, err := values.InsertOne(ctx, bson.D{{Key: "value", Value: value}})
			return err
		},
		count: func(ctx context.Context) (int, error) {
			n, err := values.CountDocuments(ctx, bson.D{})
			return int(n), err
		},
	}
}

// fullNATS does not end, but never writes to the stream again.
func fullNATS(t *testing.T) *engine {
	t.Helper()
	n, err := rig.StartNATS(within(t, time.Minute), rig.NATSConfig{Dir: t.TempDir(), Addrs: []string{address(t)}, Disks: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.WithoutCancel(t.Context())) })
	nc, err := nats.Connect(n.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "values", Subjects: []string{"values"}})
	if err != nil {
		t.Fatal(err)
	}
	return &engine{
		disk: n.Disk(0), running: func() bool { return n.Running(0) },
		restart: func(ctx context.Context) error {
			n.Kill(0)
			return n.StartAll(ctx)
		},
		write: func(ctx context.Context) error {
			_, err := js.Publish(ctx, "values", []byte(value))
			return err
		},
		count: func(ctx context.Context) (int, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return int(info.State.Msgs), nil
		},
	}
}
