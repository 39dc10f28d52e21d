package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// Owners tell which node a bucket's writes are gathered on; a Roster does.
type Owners interface {
	// ID is this node's.
	ID() string
	// Owner is the bucket's home, for a moment.
	Owner(bucket int) string
	// Works reports whether a node has said within that time that it lives and is able.
	Works(node string, within time.Duration) bool
}

// The results of a forward, as WriterConfig.OnForward is told them.
const (
	// ForwardAnswered is one that its home has answered.
	ForwardAnswered = "answered"
	// ForwardRefused is one whose home stored nothing, or not all: it ends, or can't reach the store.
	ForwardRefused = "refused"
	// ForwardNobody is one whose home is not there.
	ForwardNobody = "nobody"
	// ForwardUnanswered is one whose home did not answer in time.
	ForwardUnanswered = "unanswered"
	// ForwardShunned is one that was not made, because its home had refused or not answered another just before.
	ForwardShunned = "shunned"
)

// WriterConfig sets a Writer's limits; zero values mean the defaults.
type WriterConfig struct {
	// Wait is how long a home node is waited for that does not say meanwhile that it lives and is able: 500 ms.
	Wait time.Duration
	// MaxWait is how long one is waited for that does: 3 s. Such a home has too much to do, and to write beside it only makes
	// inserts clash.
	MaxWait time.Duration
	// Shun is how long a home that did not answer, or refused, is not asked again: 1 s.
	Shun time.Duration
	// PieceBytes is about the most that is forwarded at once: 512 KiB. A single draft may be larger.
	PieceBytes int
	// OnForward is told of every forward's result, for metrics; may be nil.
	OnForward func(result string)
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Writer appends drafts on the home node of their bucket, so that the writes of a channel from all nodes share inserts.
// This is for speed only. What the home does not do, for whatever reason, this node does itself under the same ids, and
// the store sees to it that an entry which both have written is there once.
//
// It is a message.Appender; safe for concurrent use.
type Writer struct {
	owners    Owners
	transport Transport
	local     message.Appender
	buckets   int
	cfg       WriterConfig

	life lifecycle.Base

	mu sync.Mutex // guards silent
	// silent is when nodes last did not answer, or refused.
	silent map[string]time.Time
}

var _ message.Appender = (*Writer)(nil)

// NewWriter makes a Writer over this node's own, local one. buckets is the store's.
func NewWriter(owners Owners, transport Transport, local message.Appender, buckets int, cfg WriterConfig) *Writer {
	cfg.Wait = cmp.Or(cfg.Wait, 500*time.Millisecond)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 3*time.Second)
	cfg.Shun = cmp.Or(cfg.Shun, time.Second)
	cfg.PieceBytes = cmp.Or(cfg.PieceBytes, 512<<10)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.OnForward == nil {
		cfg.OnForward = func(string) {}
	}
	return &Writer{
		owners: owners, transport: transport, local: local, buckets: buckets, cfg: cfg, silent: make(map[string]time.Time),
	}
}

// Start lets other nodes append by this one, until Stop. See lifecycle.Service.
func (w *Writer) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		cancel, err := w.transport.Serve(w.owners.ID(), topicAppend, w.serve)
		if err != nil {
			return fmt.Errorf("serve appends: %w", err)
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		return nil
	})
}

// Stop ends what Start began and waits for what is under way; the local writer must not be stopped before. Append goes on
// working.
func (w *Writer) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// Append appends drafts and answers an outcome for each, in order, with all that message.Writer.Append promises. Drafts
// must have their ids. What this node writes itself after its home may have got it, and could not be written for now, is
// answered OUTCOME_UNKNOWN, for the home may write it yet.
func (w *Writer) Append(ctx context.Context, drafts []message.Draft) []message.Outcome {
	owners := make([]string, len(drafts))
	byOwner := make(map[string]*forward, 1)
	homes := make(map[int]string, 1)
	for i := range drafts {
		bucket := message.Bucket(drafts[i].ChannelID, w.buckets)
		owner, ok := homes[bucket] // one look per bucket: the answer may change meanwhile, and a channel must not be split
		if !ok {
			owner = w.owners.Owner(bucket)
			homes[bucket] = owner
		}
		owners[i] = owner
		f := byOwner[owner]
		if f == nil {
			f = &forward{writer: w, node: owner}
			byOwner[owner] = f
		}
		f.drafts = append(f.drafts, drafts[i])
	}
	var running sync.WaitGroup
	for _, f := range byOwner {
		if len(byOwner) == 1 {
			f.run(ctx)
			break
		}
		running.Go(func() { f.run(ctx) })
	}
	running.Wait()
	outs := make([]message.Outcome, len(drafts))
	for i := range drafts {
		f := byOwner[owners[i]]
		outs[i] = f.outs[0]
		outs[i].ChannelID = drafts[i].ChannelID
		f.outs = f.outs[1:]
	}
	return outs
}

// shuns reports whether a node is not to be asked now.
func (w *Writer) shuns(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.silent[node]
	if ok && time.Since(at) >= w.cfg.Shun {
		delete(w.silent, node)
		ok = false
	}
	return ok
}

func (w *Writer) shun(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for other, at := range w.silent { // those that are gone for good are asked for by nobody
		if now.Sub(at) >= w.cfg.Shun {
			delete(w.silent, other)
		}
	}
	w.silent[node] = now
}

// serve appends for another node.
func (w *Writer) serve(ctx context.Context, payload []byte) []byte {
	var response clusterv1.AppendResponse
	drafts, err := draftsFromWire(payload)
	if err != nil {
		// The answer has no outcomes, so the asker does it himself, and at once.
		w.cfg.Logger.ErrorContext(ctx, "append for another node", "error", err)
	} else {
		for _, out := range w.local.Append(ctx, drafts) {
			response.Outcomes = append(response.Outcomes, outcomeToWire(&out))
		}
	}
	answer, err := proto.Marshal(&response)
	if err != nil {
		w.cfg.Logger.ErrorContext(ctx, "answer an append", "error", err)
		return nil
	}
	return answer
}

func draftsFromWire(payload []byte) ([]message.Draft, error) {
	var request clusterv1.AppendRequest
	if err := proto.Unmarshal(payload, &request); err != nil {
		return nil, fmt.Errorf("decode drafts: %w", err)
	}
	drafts := make([]message.Draft, len(request.GetDrafts()))
	for i, d := range request.GetDrafts() {
		var ok bool
		if drafts[i], ok = draftFromWire(d); !ok {
			return nil, fmt.Errorf("decode drafts: kind %d is unknown", d.GetKind())
		}
	}
	return drafts, nil
}
