package inspect

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// sampleEvery is the step of the history, keptSamples how many a topic has: one hour.
	sampleEvery = 5 * time.Second
	keptSamples = 720
	// watchFor is how long a topic is recorded after somebody looked at it.
	watchFor = time.Hour
	// maxLocal bounds the partitions of topics that are recorded although nobody looked at them.
	maxLocal = 256
	// maxHistory bounds the bytes of all samples, of which one has sampleBytes and groupBytes for
	// each group.
	maxHistory              = 16 << 20
	sampleBytes, groupBytes = 56, 64
	// sampleTimeout bounds the time to count one topic.
	sampleTimeout = 2 * time.Second
)

// Sample counts a topic's messages at one time.
type Sample struct {
	Time     time.Time
	Produced int64
	// Groups are sorted by name.
	Groups []GroupSample
}

// GroupSample counts a group's messages at one time. See GroupStats.
type GroupSample struct {
	Group                      string
	Waiting, Running, Retrying int64
	Acked, Dead, Retried       int64
}

// history records samples of topics on this node, in memory, for an hour. A sample costs one look
// per partition. So only topics are recorded at which somebody looked here within the last hour,
// and topics that have consumers here, up to 256 partitions in all. These are recorded so that in a
// small installation a first look finds a history; they cost up to 51 looks a second. Nodes do not
// ask each other for sessions if a group has nothing that could run. The samples of all topics have
// up to 16 MiB; topics for which there is no room are not recorded,
// those that were looked at last come first.
type history struct {
	mu     sync.Mutex // guards topics
	topics map[string]*record
}

// record is the history of a topic.
type record struct {
	uid string
	// looked is when somebody looked at the topic last, zero if it is recorded because it has
	// consumers.
	looked     time.Time
	partitions int
	groups     int
	samples    []Sample
}

// bytes is what an hour of the topic needs.
func (r *record) bytes() int { return keptSamples * (sampleBytes + r.groups*groupBytes) }

// look notes that somebody looks at a topic, and returns its samples.
func (h *history) look(now time.Time, t *qlog.Topic) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.record(t)
	r.looked = now
	return slices.Clone(r.samples)
}

// record returns the record of a topic, a new one if there is none, or one of an earlier topic of
// the name.
func (h *history) record(t *qlog.Topic) *record {
	r := h.topics[t.Name]
	if r == nil || r.uid != t.UID {
		r = &record{uid: t.UID}
		if h.topics == nil {
			h.topics = map[string]*record{}
		}
		h.topics[t.Name] = r
	}
	r.partitions, r.groups = t.Partitions, len(t.Groups)
	return r
}

// choose returns the topics to sample, and forgets the others. local are topics with consumers
// here.
func (h *history) choose(now time.Time, local []*qlog.Topic) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	here := map[string]bool{}
	for _, t := range local {
		here[t.Name] = true
		h.record(t)
	}
	names := make([]string, 0, len(h.topics))
	for name := range h.topics {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := h.topics[b].looked.Compare(h.topics[a].looked); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	var chosen []string
	partitions, bytes := 0, 0
	for _, name := range names {
		r := h.topics[name]
		watched := now.Sub(r.looked) < watchFor
		fits := bytes+r.bytes() <= maxHistory && (watched || here[name] && partitions+r.partitions <= maxLocal)
		if !fits {
			delete(h.topics, name)
			continue
		}
		partitions, bytes = partitions+r.partitions, bytes+r.bytes()
		chosen = append(chosen, name)
	}
	return chosen
}

// add adds a sample of a topic.
func (h *history) add(t *qlog.Topic, s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.topics[t.Name]
	if r == nil || r.uid != t.UID {
		return
	}
	r.samples = append(r.samples, s)
	if over := len(r.samples) - keptSamples; over > 0 {
		r.samples = slices.Delete(r.samples, 0, over)
	}
}

// Start implements lifecycle.Service: it begins to record history, and to report gauges.
func (s *Service) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		if s.cfg.Meter != nil {
			gauges, err := NewGauges(s.cfg.Meter, s.cfg.Store, s.cfg.Owned)
			if err != nil {
				return err
			}
			run.OnStop(func(context.Context) error { return gauges.Unregister() })
		}
		run.Go(func(ctx context.Context) {
			for lifecycle.Pause(ctx, sampleEvery) == nil {
				s.sample(ctx, time.Now())
			}
		})
		return nil
	})
}

// Stop implements lifecycle.Service.
func (s *Service) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

// sample records one sample of each topic that is recorded.
func (s *Service) sample(ctx context.Context, now time.Time) {
	var local []*qlog.Topic
	if s.cfg.Local != nil {
		for _, name := range s.cfg.Local() {
			if t, err := s.topic(ctx, name); err == nil {
				local = append(local, t)
			}
		}
	}
	names := s.history.choose(now, local)
	_ = each(ctx, len(names), func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		t, err := s.topic(ctx, names[i])
		if err != nil {
			return nil // the next sample tries again, or the topic is gone
		}
		stats, err := s.stats(ctx, t, func(g qlog.GroupCounts) bool { return g.Open > g.Retrying })
		if err != nil {
			return nil // a gap in the history
		}
		s.history.add(t, sampleOf(now, &stats.Total))
		return nil
	})
}

func sampleOf(now time.Time, total *PartitionStats) Sample {
	sample := Sample{Time: now, Produced: total.Produced, Groups: make([]GroupSample, len(total.Groups))}
	for i := range total.Groups {
		g := &total.Groups[i]
		sample.Groups[i] = GroupSample{
			Group: g.Group, Waiting: g.Waiting, Running: g.Running, Retrying: g.Retrying, Acked: g.Acked, Dead: g.Dead, Retried: g.Retried,
		}
	}
	return sample
}
