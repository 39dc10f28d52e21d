package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

const (
	// hintEvery is the minimum time between two broadcasts about one topic.
	hintEvery = time.Millisecond
	// probeValidFor is how long Connected trusts the result of the last broadcast.
	probeValidFor = 250 * time.Millisecond
	// maxPartitions is the maximum number of partitions of a topic: a hint has a byte for each.
	maxPartitions = 256
	// maxHintTopicLen bounds the length of a transport topic, in bytes.
	maxHintTopicLen = 64
	// topicReady is the prefix of the transport topics for queues. topicProbe is a topic without
	// listeners.
	topicReady = "queue-ready-"
	topicProbe = "queue-probe"
)

// QueueHints announces to all nodes that a partition of a queue's topic may have messages to fetch.
// Delivery is at most once: an announcement is a hint and may be lost. Listeners on this node are
// called directly, without the transport. Safe for concurrent use.
//
// A broadcast carries the sender's id and the partitions, one byte each. Broadcasts about one topic
// are at least a millisecond apart. Hints that arrive in between go into the next broadcast, so the
// last one is never held back forever.
type QueueHints struct {
	transport cluster.Transport
	log       *slog.Logger
	id        string

	mu        sync.Mutex // guards the fields below
	listeners map[string]map[*func(int)]struct{}
	// waiting holds the topics with a broadcast in the last millisecond, and the partitions for their
	// next one.
	waiting map[string]*hintBatch
	// failed is true if the last broadcast could not be sent. probed is the time of that broadcast.
	failed bool
	probed time.Time
	// sending is true between Start and Stop.
	sending bool

	life lifecycle.Base
}

var _ consume.Hints = (*QueueHints)(nil)

type hintBatch struct {
	partitions map[int]struct{}
	timer      *time.Timer
}

// NewQueueHints creates a QueueHints. A nil logger means slog.Default.
func NewQueueHints(transport cluster.Transport, logger *slog.Logger) *QueueHints {
	return &QueueHints{
		transport: transport, log: cmp.Or(logger, slog.Default()), id: cluster.NewID(),
		listeners: make(map[string]map[*func(int)]struct{}), waiting: make(map[string]*hintBatch),
	}
}

// Ready announces a partition. It does not wait for delivery.
func (h *QueueHints) Ready(topic string, partition int) {
	if partition < 0 || partition >= maxPartitions {
		return
	}
	h.notifyLocal(topic, partition)
	h.mu.Lock()
	if !h.sending {
		h.mu.Unlock()
		return
	}
	if b := h.waiting[topic]; b != nil {
		b.partitions[partition] = struct{}{}
		h.mu.Unlock()
		return
	}
	h.startInterval(topic)
	h.mu.Unlock()
	h.send(topic, map[int]struct{}{partition: {}})
}

// startInterval starts the interval in which no other broadcast about the topic is sent. The caller
// holds mu.
func (h *QueueHints) startInterval(topic string) {
	b := &hintBatch{partitions: make(map[int]struct{})}
	b.timer = time.AfterFunc(hintEvery, func() { h.flush(topic) })
	h.waiting[topic] = b
}

// flush broadcasts the partitions collected since the last broadcast, if any.
func (h *QueueHints) flush(topic string) {
	h.mu.Lock()
	b := h.waiting[topic]
	delete(h.waiting, topic)
	if b == nil || !h.sending || len(b.partitions) == 0 {
		h.mu.Unlock()
		return
	}
	h.startInterval(topic)
	h.mu.Unlock()
	h.send(topic, b.partitions)
}

func (h *QueueHints) send(topic string, partitions map[int]struct{}) {
	payload := make([]byte, 0, cluster.IDLen+len(partitions))
	payload = append(payload, h.id...)
	for p := range partitions {
		payload = append(payload, byte(p)) //nolint:gosec // below MaxPartitions
	}
	err := h.transport.Broadcast(hintTopic(topic), payload)
	h.recordSend(err)
	if err != nil {
		h.log.Debug("broadcasting a queue hint failed", "topic", topic, "error", err)
	}
}

// Listen calls fn for each announcement of the topic, until cancel. fn must not block. Ready of
// this QueueHints calls it directly, so it may be called concurrently.
func (h *QueueHints) Listen(topic string, fn func(partition int)) (cancel func(), err error) {
	cancelListen, err := h.transport.Listen(hintTopic(topic), func(payload []byte) {
		if len(payload) < cluster.IDLen || string(payload[:cluster.IDLen]) == h.id {
			return
		}
		for _, p := range payload[cluster.IDLen:] {
			fn(int(p))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to a queue's hints: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners[topic] == nil {
		h.listeners[topic] = make(map[*func(int)]struct{})
	}
	h.listeners[topic][&fn] = struct{}{}
	return func() {
		cancelListen()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners[topic], &fn)
		if len(h.listeners[topic]) == 0 {
			delete(h.listeners, topic)
		}
	}, nil
}

// notifyLocal calls this node's listeners.
func (h *QueueHints) notifyLocal(topic string, partition int) {
	h.mu.Lock()
	var fns []*func(int)
	for fn := range h.listeners[topic] {
		fns = append(fns, fn)
	}
	h.mu.Unlock()
	for _, fn := range fns {
		(*fn)(partition)
	}
}

// Connected reports whether the last broadcast could be sent. If that is
// more than a quarter of a second ago, it sends one to a topic without listeners.
func (h *QueueHints) Connected() bool {
	h.mu.Lock()
	fresh, failed := time.Since(h.probed) < probeValidFor, h.failed
	h.mu.Unlock()
	if fresh {
		return !failed
	}
	err := h.transport.Broadcast(topicProbe, nil)
	h.recordSend(err)
	return err == nil
}

func (h *QueueHints) recordSend(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.probed = err != nil, time.Now()
}

// Start enables broadcasts. Before Start, and after Stop, Ready only calls the listeners of this
// node. See lifecycle.Service.
func (h *QueueHints) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sending = true
		run.OnStop(func(context.Context) error { h.disable(); return nil })
		return nil
	})
}

// Stop disables broadcasts. Listeners stay until they are cancelled.
func (h *QueueHints) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

func (h *QueueHints) disable() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending = false
	for _, b := range h.waiting {
		b.timer.Stop()
	}
	clear(h.waiting)
}

// hintTopic returns the transport topic for a queue topic. If that is too long, a digest replaces
// the queue's name. Two queues with the same digest would only cause each other needless fetches.
func hintTopic(topic string) string {
	if len(topicReady)+len(topic) <= maxHintTopicLen {
		return topicReady + topic
	}
	sum := sha256.Sum256([]byte(topic))
	return topicReady + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:26]
}
