package fanout

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// plainEncoder returns constant bytes, so that a benchmark measures the hub and not the encoder.
type plainEncoder struct{ data []byte }

func (p plainEncoder) Event(*message.Event) []byte { return p.data }

func (p plainEncoder) State(string, int64, message.State, bool) []byte { return p.data }

func (p plainEncoder) Gap(string, int64, int64, string, GapReason) []byte { return p.data }

func (p plainEncoder) Lost(string, LostReason) []byte { return p.data }

func (p plainEncoder) Delta(string, string, int, string) []byte { return p.data }

func (p plainEncoder) Typing(string, string) []byte { return p.data }

// fleet opens n streams, each subscribed to channel "c" alone, and waits until all are live.
func fleet(b *testing.B, h *Hub, n int) []*Stream {
	b.Helper()
	streams := make([]*Stream, n)
	for i := range streams {
		s, err := h.Open(fmt.Sprintf("user %d", i), time.Now().Add(time.Hour))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Add([]Position{live("c")}); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
		streams[i] = s
	}
	return streams
}

// BenchmarkFanout publishes to 1000 streams that read as fast as they can. "saturated" stays up to
// 1000 events ahead of the readers; "paced" waits after each event until every stream has it.
func BenchmarkFanout(b *testing.B) {
	for _, paced := range []bool{false, true} {
		b.Run(map[bool]string{false: "saturated", true: "paced"}[paced], func(b *testing.B) {
			const n = 1000
			log, bus := newLog(), newBus()
			h := New(Config{}, bus, log, plainEncoder{make([]byte, 200)})
			lifecycletest.Start(b, h)
			streams := fleet(b, h, n)
			ctx, cancel := context.WithCancel(context.Background())
			var readers sync.WaitGroup
			var got, bytes atomic.Int64
			for _, s := range streams {
				readers.Go(func() {
					defer s.Close()
					buffer := make([]byte, 0, 4096)
					for {
						f, err := s.Next(ctx)
						if err != nil {
							if ctx.Err() == nil {
								b.Error(err)
							}
							return
						}
						buffer = buffer[:0] // as a codec does
						for _, p := range f.Pieces {
							buffer = append(buffer, p...)
						}
						bytes.Add(int64(len(buffer)))
						got.Add(int64(f.Events))
					}
				})
			}
			event := message.Event{Epoch: "e1", Time: time.Now(), Message: message.Message{ChannelID: "c"}}
			const window = 1000
			b.ReportAllocs()
			for b.Loop() {
				event.Seq++
				bus.publish(event)
				for behind := int64(window); got.Load() < (event.Seq-behind)*n || paced && got.Load() < event.Seq*n; {
					runtime.Gosched()
				}
			}
			for got.Load() < event.Seq*n && !b.Failed() {
				runtime.Gosched()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(got.Load()), "ns/delivery")
			b.ReportMetric(float64(got.Load())/float64(h.stats.frames.Load()), "events/frame")
			cancel()
			readers.Wait()
		})
	}
}

// BenchmarkPush measures the hub alone: one event is queued to 1000 streams and taken from their
// queues.
func BenchmarkPush(b *testing.B) {
	const n, batch = 1000, 100
	log, bus := newLog(), newBus()
	h := New(Config{}, bus, log, plainEncoder{make([]byte, 200)})
	lifecycletest.Start(b, h)
	streams := fleet(b, h, n)
	event := message.Event{Epoch: "e1", Time: time.Now(), Message: message.Message{ChannelID: "c"}}
	b.ReportAllocs()
	for b.Loop() {
		for range batch {
			event.Seq++
			bus.publish(event)
		}
		for _, s := range streams {
			if f, err := s.Next(b.Context()); err != nil || f.Events != batch {
				b.Fatal(f.Events, err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n*batch), "ns/delivery")
	for _, s := range streams {
		s.Close()
	}
}

// BenchmarkFrame compares two ways to write a frame of pieces: a codec copies each piece into its
// own buffer, or the hub joins the pieces first (a second copy and another buffer).
func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{1, 100} {
		pieces := make([][]byte, n)
		for i := range pieces {
			pieces[i] = make([]byte, 200)
		}
		for _, joined := range []bool{false, true} {
			b.Run(fmt.Sprintf("events=%d/joined=%t", n, joined), func(b *testing.B) {
				b.ReportAllocs()
				out := make([]byte, 0, 200*n)
				for b.Loop() {
					from := pieces
					if joined {
						all := make([]byte, 0, 200*n)
						for _, p := range pieces {
							all = append(all, p...)
						}
						from = [][]byte{all}
					}
					out = out[:0]
					for _, p := range from {
						out = append(out, p...)
					}
				}
			})
		}
	}
}

// BenchmarkIdleStream reports the heap and the stack memory per stream of streams with one live
// channel each, whose Next waits in a goroutine.
func BenchmarkIdleStream(b *testing.B) {
	for b.Loop() {
		const n = 10_000
		log, bus := newLog(), newBus()
		h := New(Config{}, bus, log, plainEncoder{make([]byte, 200)})
		lifecycletest.Start(b, h)
		before := memory()
		streams := fleet(b, h, n)
		ctx, cancel := context.WithCancel(context.Background())
		waiting := &countingContext{Context: ctx}
		var readers sync.WaitGroup
		for _, s := range streams {
			readers.Go(func() {
				if _, err := s.Next(waiting); ctx.Err() == nil {
					b.Error(err)
				}
			})
		}
		for waiting.count.Load() < n {
			runtime.Gosched()
		}
		now := memory()
		b.ReportMetric(float64(now.HeapAlloc-before.HeapAlloc)/n, "heap-B/stream")
		b.ReportMetric(float64(now.StackInuse-before.StackInuse)/n, "stack-B/stream")
		cancel()
		readers.Wait()
		for _, s := range streams {
			s.Close()
		}
		lifecycletest.Stop(b, h)
	}
}

// countingContext counts the calls of Done. Next calls Done once each time it begins to wait.
type countingContext struct {
	context.Context

	count atomic.Int64
}

func (c *countingContext) Done() <-chan struct{} {
	c.count.Add(1)
	return c.Context.Done()
}

func memory() runtime.MemStats {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m
}

// BenchmarkComeback lets 1000 streams come back to 10 channels, each with three entries to catch
// up on, and reports how often the log is read.
func BenchmarkComeback(b *testing.B) {
	const n, channels = 1000, 10
	log, bus := newLog(), newBus()
	for i := range channels {
		log.addMany(fmt.Sprintf("c%d", i), 100)
	}
	b.ReportAllocs()
	for b.Loop() {
		h := New(Config{}, bus, log, plainEncoder{make([]byte, 200)})
		lifecycletest.Start(b, h)
		var readers sync.WaitGroup
		for i := range n {
			s, err := h.Open(fmt.Sprintf("user %d", i), time.Time{})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Add([]Position{after(fmt.Sprintf("c%d", i%channels), 97)}); err != nil {
				b.Fatal(err)
			}
			readers.Go(func() {
				defer s.Close()
				for got := 0; got < 3; {
					f, err := s.Next(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					got += f.Events
				}
			})
		}
		readers.Wait()
		lifecycletest.Stop(b, h)
	}
	b.ReportMetric(float64(log.replays)/float64(b.N)/n, "reads/stream")
}
