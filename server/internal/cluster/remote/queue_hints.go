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
	"github.com/parleyhq/parley/server/internal/queue"
)

const (
	// hintEvery is the least time between two words about one topic.
	hintEvery = time.Millisecond
	// believeFor is how long what is known of the connection is believed.
	believeFor = 250 * time.Millisecond
	// maxHintWord is how long a transport's topic may be.
	maxHintWord = 64
	// topicReady is what the transport's topics of queues begin with, and topicProbe one that nobody listens on.
	topicReady = "queue-ready-"
	topicProbe = "queue-probe"
)

// QueueHints tells all nodes that something may be fetched in a partition, at most once: it is a hint, which may be lost.
// Listeners of this node are told at once and without the transport. Safe for concurrent use.
//
// A word is the sender's id and the partitions, a byte each. Words about one topic are at least a millisecond apart; what
// comes meanwhile is told by the next, so the last hint is never held back for good.
type QueueHints struct {
	transport cluster.Transport
	log       *slog.Logger
	id        string

	mu        sync.Mutex // guards what follows
	listeners map[string]map[*func(int)]struct{}
	// waiting are the topics about which a word was sent just now, with what the next is to tell.
	waiting map[string]*hintBatch
	// failed says that the last word could not be sent, at probed.
	failed bool
	probed time.Time
	// sending is true between Start and Stop.
	sending bool

	life lifecycle.Base
}

var _ queue.Hints = (*QueueHints)(nil)

type hintBatch struct {
	partitions map[int]struct{}
	timer      *time.Timer
}

// NewQueueHints makes QueueHints. logger is slog.Default if nil.
func NewQueueHints(transport cluster.Transport, logger *slog.Logger) *QueueHints {
	return &QueueHints{
		transport: transport, log: cmp.Or(logger, slog.Default()), id: cluster.NewID(),
		listeners: make(map[string]map[*func(int)]struct{}), waiting: make(map[string]*hintBatch),
	}
}

// Ready implements queue.Hints. It waits for nobody.
func (h *QueueHints) Ready(topic string, partition int) {
	if partition < 0 || partition >= queue.MaxPartitions {
		return
	}
	h.tell(topic, partition)
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
	h.await(topic)
	h.mu.Unlock()
	h.send(topic, map[int]struct{}{partition: {}})
}

// await opens the time in which no other word about the topic is sent. The caller holds mu.
func (h *QueueHints) await(topic string) {
	b := &hintBatch{partitions: make(map[int]struct{})}
	b.timer = time.AfterFunc(hintEvery, func() { h.flush(topic) })
	h.waiting[topic] = b
}

// flush sends what has come since the last word, if anything has.
func (h *QueueHints) flush(topic string) {
	h.mu.Lock()
	b := h.waiting[topic]
	delete(h.waiting, topic)
	if b == nil || !h.sending || len(b.partitions) == 0 {
		h.mu.Unlock()
		return
	}
	h.await(topic)
	h.mu.Unlock()
	h.send(topic, b.partitions)
}

func (h *QueueHints) send(topic string, partitions map[int]struct{}) {
	word := make([]byte, 0, cluster.IDLen+len(partitions))
	word = append(word, h.id...)
	for p := range partitions {
		word = append(word, byte(p)) //nolint:gosec // below MaxPartitions
	}
	err := h.transport.Broadcast(hintTopic(topic), word)
	h.note(err)
	if err != nil {
		h.log.Debug("other nodes learn of a queue's messages by looking", "topic", topic, "error", err)
	}
}

// Listen implements queue.Hints. fn must not block; it is called by whoever calls Ready on this node, too.
func (h *QueueHints) Listen(topic string, fn func(partition int)) (cancel func(), err error) {
	unhear, err := h.transport.Listen(hintTopic(topic), func(word []byte) {
		if len(word) < cluster.IDLen || string(word[:cluster.IDLen]) == h.id {
			return
		}
		for _, p := range word[cluster.IDLen:] {
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
		unhear()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners[topic], &fn)
		if len(h.listeners[topic]) == 0 {
			delete(h.listeners, topic)
		}
	}, nil
}

// tell tells this node's listeners.
func (h *QueueHints) tell(topic string, partition int) {
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

// Connected implements queue.Hints: whether words could be sent within the last quarter of a second.
func (h *QueueHints) Connected() bool {
	h.mu.Lock()
	fresh, failed := time.Since(h.probed) < believeFor, h.failed
	h.mu.Unlock()
	if fresh {
		return !failed
	}
	err := h.transport.Broadcast(topicProbe, nil)
	h.note(err)
	return err == nil
}

func (h *QueueHints) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.probed = err != nil, time.Now()
}

// Start begins the sending of words. Before it, and after Stop, Ready tells the listeners of this node alone. See
// lifecycle.Service.
func (h *QueueHints) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sending = true
		run.OnStop(func(context.Context) error { h.silence(); return nil })
		return nil
	})
}

// Stop ends the sending of words. Listeners stay until they are cancelled.
func (h *QueueHints) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

func (h *QueueHints) silence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sending = false
	for _, b := range h.waiting {
		b.timer.Stop()
	}
	clear(h.waiting)
}

// hintTopic gives the transport's topic for a queue's. Where the name is too long for that its digest stands for it: two
// queues that share one would only wake each other.
func hintTopic(topic string) string {
	if len(topicReady)+len(topic) <= maxHintWord {
		return topicReady + topic
	}
	sum := sha256.Sum256([]byte(topic))
	return topicReady + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:26]
}
