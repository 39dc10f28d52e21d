package redispresence

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const (
	// pipelineUsers is the number of users whose states change, and pipelineWaiting the number of
	// changes that wait at most.
	pipelineUsers   = 50_000
	pipelineWaiting = 8 * 500
	// pipelineWorkers is the number of concurrent writers, the default of presence.workers.
	pipelineWorkers = 8
)

// countingBus is the bus of a node without peers. It counts the announced entries.
type countingBus struct{ announced atomic.Int64 }

func (b *countingBus) Announce(a presence.Announcement) { b.announced.Add(int64(len(a.Entries))) }
func (*countingBus) Heads([]presence.ShardHead)         {}
func (*countingBus) Beat(presence.NodeBeat)             {}
func (*countingBus) Dead(string)                        {}
func (*countingBus) Connected() bool                    { return true }
func (*countingBus) Listen(presence.BusHandler) (cancel func(), err error) {
	return func() {}, nil
}

// ownsAll is the only node of a fleet.
type ownsAll struct{}

func (ownsAll) Owns(int) bool { return true }

func (ownsAll) Owner(int) string { return "" }

// BenchmarkPipeline measures changes through a node: from SetBackground of a Hub to the
// announcement, alternately with the same changes written by Store.Set alone, in pipelines of the
// same shape: 500 users of 32 shards. packed are pipelines of five calls for 100 users of one shard
// each. One iteration changes all users once in each of the three ways. cpu is the CPU time of this
// process, and core-s a second of the CPU time of Redis.
func BenchmarkPipeline(b *testing.B) {
	client := testkit.Redis(b).Client(b)
	bus := &countingBus{}
	hub, streams := startBenchHub(b, newBenchStore(b, client, Config{}), bus)
	store := newBenchStore(b, client, Config{Prefix: "raw:"}) // its logs are not the hub's to follow
	var node, raw, packed rates
	spread, full := pipelineCalls(presence.Shards/pipelineWorkers), pipelineCalls(1)
	background := false
	for b.Loop() {
		background = !background
		node.take(b, client, func() { changeThroughHub(b, hub, bus, streams, background) })
		state := map[bool]string{true: "8b", false: "8f"}[background]
		raw.take(b, client, func() { changeRaw(b, store, spread, state) })
		state = map[bool]string{true: "7b", false: "7f"}[background]
		packed.take(b, client, func() { changeRaw(b, store, full, state) })
	}
	node.report(b, "node")
	raw.report(b, "raw")
	packed.report(b, "packed")
	b.ReportMetric(node.perSecond()/raw.perSecond(), "node/raw")
}

// startBenchHub starts a hub with a stream for each of pipelineUsers users.
func startBenchHub(b *testing.B, store *Store, bus *countingBus) (*presence.Hub, []*presence.Stream) {
	b.Helper()
	hub := presence.NewHub(presence.Config{Store: store, Bus: bus, Owner: ownsAll{}, Node: "BENCH"})
	if err := hub.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := hub.Stop(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	streams := make([]*presence.Stream, pipelineUsers)
	for i := range streams {
		s, _, err := hub.Open(b.Context(), &presence.OpenRequest{
			Subject: pipelineUser(i), Expires: time.Now().Add(time.Hour), Platform: presence.Web, Device: "bench",
		})
		if err != nil {
			b.Fatal(err)
		}
		streams[i] = s
	}
	awaitAnnounced(b, bus, pipelineUsers)
	return hub, streams
}

func pipelineUser(i int) string { return fmt.Sprintf("user-%08d", i) }

func awaitAnnounced(b *testing.B, bus *countingBus, n int64) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); bus.announced.Load() < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d changes were announced", bus.announced.Load(), n)
		}
	}
}

// changeThroughHub changes every stream's background, at most pipelineWaiting ahead of the
// announcements.
func changeThroughHub(b *testing.B, hub *presence.Hub, bus *countingBus, streams []*presence.Stream, background bool) {
	b.Helper()
	before := bus.announced.Load()
	for i, s := range streams {
		if err := hub.SetBackground(b.Context(), s.ID(), pipelineUser(i), background); err != nil {
			b.Fatal(err)
		}
		for int64(i)-(bus.announced.Load()-before) >= pipelineWaiting {
			time.Sleep(100 * time.Microsecond) //nolint:forbidigo // back-pressure of the load, not a wait for a result
		}
	}
	awaitAnnounced(b, bus, before+int64(len(streams)))
}

// pipelineCalls returns the pipelines of each worker. A pipeline writes 500 users of a number of
// shards.
func pipelineCalls(shards int) (workers [][][]presence.SetCall) {
	const size = 500
	workers = make([][][]presence.SetCall, pipelineWorkers)
	user := 0
	for n := range pipelineUsers / size {
		w := n % pipelineWorkers
		var calls []presence.SetCall
		for at := 0; at < size; {
			call := presence.SetCall{Node: "RAW.1", Epoch: benchEpoch, NotAfter: time.Now().Add(time.Hour)}
			call.Shard = (w + pipelineWorkers*(len(calls)+n)) % presence.Shards
			for range min(size-at, max(size/shards, 1), MaxSet) {
				call.Users = append(call.Users, part(fmt.Sprintf("raw-%d-%08d", shards, user), "8f"))
				user++
				at++
			}
			calls = append(calls, call)
		}
		workers[w] = append(workers[w], calls)
	}
	return workers
}

// changeRaw writes a state of all users, with a goroutine for each worker.
func changeRaw(b *testing.B, store *Store, workers [][][]presence.SetCall, state string) {
	b.Helper()
	var wg sync.WaitGroup
	for _, pipelines := range workers {
		wg.Go(func() {
			for _, calls := range pipelines {
				for i := range calls {
					for j := range calls[i].Users {
						calls[i].Users[j].State = st(state)
					}
				}
				for _, r := range store.Set(b.Context(), calls) {
					if r.Outcome != presence.Done {
						b.Errorf("%+v", r)
					}
				}
			}
		})
	}
	wg.Wait()
}

// rates sums the measurements of one way to change users.
type rates struct {
	users             int
	took, cpu, server time.Duration
}

func (r *rates) take(b *testing.B, client *redis.Client, change func()) {
	b.Helper()
	server, own, began := cpu(b, client), ownCPU(b), time.Now()
	change()
	r.took += time.Since(began)
	r.cpu += ownCPU(b) - own
	r.server += cpu(b, client) - server
	r.users += pipelineUsers
}

func (r *rates) perSecond() float64 { return float64(r.users) / r.took.Seconds() }

func (r *rates) report(b *testing.B, name string) {
	b.Helper()
	b.ReportMetric(r.perSecond(), name+"-changes/s")
	b.ReportMetric(float64(r.users)/r.server.Seconds(), name+"-changes/core-s")
	b.ReportMetric(float64(r.cpu.Nanoseconds())/1000/float64(r.users), name+"-cpu-us/change")
}

// ownCPU returns the CPU time that this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
