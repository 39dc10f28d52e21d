package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/internal/rig"
)

// gauge is something that must not grow, and its samples.
type gauge struct {
	name, unit string
	// scale is the size of a unit.
	scale float64
	// bar is the gauge's own bar in percent in 10 minutes, if it is higher than that of the run.
	bar     float64
	read    func(ctx context.Context) (float64, error)
	samples []point
	missed  int // samples that could not be read
}

const mib = 1 << 20

// mongodBar is the bar of the memory of mongod. Its storage engine grows for longer than the server
// settles, regardless of who writes: the buffers in which it logs checkpoints, and in which its
// eviction threads read and write pages. By the heap profile of mongod 6.0.5 what grew most in a
// soak was all in the engine, and nothing above the engine grew while a program only inserted and
// updated such documents. Soaks of half an hour grew by 2.6 to 4.3 % in 10 minutes, one of them
// with a constant number of connections.
const mongodBar = 6

// goroutinesBar is the bar of the goroutines under load, most of which serve the calls in progress.
// It finds large leaks, such as one for each call. judgeRest finds small ones.
const goroutinesBar = 5

// mostMissed is how many samples of a gauge may be missing, besides a tenth of them.
const mostMissed = 3

// meter reads all gauges of a fleet.
type meter struct {
	gauges []*gauge
	redis  *redis.Client
	nats   *nats.Conn
	js     jetstream.JetStream
	mongo  *mongo.Client
	ops    string
	status bson.Raw // of MongoDB, by the last read of mongod memory
}

// newMeter connects to the engines of a fleet. The caller must close it.
func newMeter(fleet *rig.Fleet) (_ *meter, err error) {
	m := &meter{ops: "http://" + fleet.Node(0).OpsAddr(), redis: fleet.Redis.Client()}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close(context.Background())) //nolint:forbidigo // there is no call to end
		}
	}()
	if m.nats, err = nats.Connect(fleet.NATS.URL()); err != nil {
		return nil, err
	}
	if m.js, err = jetstream.New(m.nats); err != nil {
		return nil, err
	}
	if m.mongo, err = mongo.Connect(options.Client().ApplyURI(fleet.Mongo.URI())); err != nil {
		return nil, err
	}
	m.gauges = []*gauge{
		{name: "heap after GC", unit: "MiB", scale: mib, read: m.heap},
		{name: "goroutines", unit: "", scale: 1, bar: goroutinesBar, read: m.goroutines},
		{name: "redis used_memory", unit: "MiB", scale: mib, read: m.redisMemory},
		{name: "JetStream bytes", unit: "MiB", scale: mib, read: m.streamBytes},
		{name: "mongod resident", unit: "MiB", scale: 1, bar: mongodBar, read: m.mongoResident},
		{name: "mongod allocated", unit: "MiB", scale: mib, bar: mongodBar, read: m.mongoAllocated},
	}
	return m, nil
}

// sample reads all gauges. at is the time since the load began. A gauge that cannot be read in
// time, because the machine is busy, has no sample; more than a few of these are an error.
func (m *meter) sample(ctx context.Context, at time.Duration) error {
	for _, g := range m.gauges {
		value, err := g.read(ctx)
		if err == nil {
			g.samples = append(g.samples, point{at, value})
			continue
		}
		if g.missed++; ctx.Err() != nil || g.missed > mostMissed+len(g.samples)/10 {
			return fmt.Errorf("read %s: %w", g.name, err)
		}
	}
	return nil
}

func (m *meter) close(ctx context.Context) error {
	err := m.redis.Close()
	if m.nats != nil {
		m.nats.Close()
	}
	if m.mongo != nil {
		err = errors.Join(err, m.mongo.Disconnect(ctx))
	}
	return err
}

// heap returns the bytes of the heap of parleyd that are in use after a collection.
func (m *meter) heap(ctx context.Context) (float64, error) {
	return m.number(ctx, "/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc = ")
}

// The number of goroutines is read goroutineReads times within about four seconds, because the
// load's streams and connections come and go within seconds: one read is as uncertain as the bar.
const (
	goroutineReads = 40
	goroutinePause = 100 * time.Millisecond
)

// goroutines returns the mean number of goroutines of parleyd during some seconds.
func (m *meter) goroutines(ctx context.Context) (float64, error) {
	sum := 0.0
	pause := time.NewTicker(goroutinePause)
	defer pause.Stop()
	for range goroutineReads {
		n, err := m.number(ctx, "/debug/pprof/goroutine?debug=1", "goroutine profile: total ")
		if err != nil {
			return 0, err
		}
		sum += n
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return sum / goroutineReads, nil
}

// number returns the number after prefix in a page of the ops address.
func (m *meter) number(ctx context.Context, path, prefix string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ops+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		text, err := lines.ReadString('\n')
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%s has no line that begins with %q", path, prefix)
		}
		if err != nil {
			return 0, err
		}
	}
}

func (m *meter) redisMemory(ctx context.Context) (float64, error) {
	info, err := m.redis.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["Memory"]["used_memory"], 64)
}

// streamBytes returns the size of all streams.
func (m *meter) streamBytes(ctx context.Context) (float64, error) {
	sum := 0.0
	streams := m.js.ListStreams(ctx)
	for info := range streams.Info() {
		sum += float64(info.State.Bytes)
	}
	return sum, streams.Err()
}

// mongoResident returns the resident memory of mongod in MiB.
func (m *meter) mongoResident(ctx context.Context) (_ float64, err error) {
	m.status, err = m.mongo.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
	if err != nil {
		return 0, err
	}
	return asFloat(m.status.Lookup("mem", "resident"))
}

// mongoAllocated returns the bytes that mongod has allocated and not freed, as of the last call of
// mongoResident.
func (m *meter) mongoAllocated(context.Context) (float64, error) {
	return asFloat(m.status.Lookup("tcmalloc", "generic", "current_allocated_bytes"))
}

func asFloat(v bson.RawValue) (float64, error) {
	n, ok := v.AsInt64OK()
	if !ok {
		return 0, fmt.Errorf("%v is not a number", v)
	}
	return float64(n), nil
}
