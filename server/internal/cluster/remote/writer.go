package remote

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/message"
)

// appendDrafts has no timeout of its own: WriterConfig limits how long a forward waits for its
// home.
var appendDrafts = cluster.Method[*clusterv1.AppendRequest, *clusterv1.AppendResponse]{Name: "append"}

// Owners reports which node is the home of a bucket's writes. *cluster.Roster implements it.
type Owners interface {
	// Owner returns the node that is currently the bucket's home.
	Owner(bucket int) string
	// RecentlyAble reports whether a node announced within that time that it is alive and able.
	RecentlyAble(node string, within time.Duration) bool
}

// The results of forwarding drafts to their home node, as passed to WriterConfig.OnForward.
const (
	// ForwardAnswered means that the home has answered and this node need not append any of the drafts
	// itself.
	ForwardAnswered = "answered"
	// ForwardRefused means that the home stored nothing, or not all, because it is shutting down,
	// ran out of time, or can't reach the store.
	ForwardRefused = "refused"
	// ForwardNobody means that the home is gone, can't be reached or has too many requests.
	ForwardNobody = "nobody"
	// ForwardUnanswered means that the home did not answer in time.
	ForwardUnanswered = "unanswered"
	// ForwardShunned means that the home was not called, because it recently refused or did not
	// answer.
	ForwardShunned = "shunned"
)

// WriterConfig sets a Writer's limits. Zero values mean the defaults.
type WriterConfig struct {
	// Wait is how long a Writer waits for the answer of a home node that does not announce meanwhile
	// that it is alive and able. Default 500 ms.
	Wait time.Duration
	// MaxWait is how long a Writer waits for the answer of a home node that does announce it. Default
	// 3 s. Such a home is overloaded, and writing beside it would only cause conflicting inserts.
	MaxWait time.Duration
	// Shun is how long a home that refused or did not answer is not called; this node appends its
	// drafts meanwhile. Default 1 s.
	Shun time.Duration
	// PieceBytes is the approximate maximum size of one request to a home. Default 512 KiB. A single
	// draft may be larger.
	PieceBytes int
	// OnForward is called with the result of every request to a home, for metrics; also with
	// ForwardShunned, for which none is sent. It may be nil.
	OnForward func(result string)
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
}

// Writer appends drafts on the home node of their bucket, so that writes of a channel from all
// nodes share inserts. This is for speed only. If the home fails for any reason, this node appends
// the drafts itself under the same ids, and the store keeps an entry that both have written only
// once.
//
// Other nodes may append through this one between Start and Stop. Append keeps working after Stop.
// The local writer must not be closed before Stop returns.
//
// It is a message.Appender. Safe for concurrent use.
type Writer struct {
	*cluster.Handlers

	endpoint *cluster.Endpoint
	owners   Owners
	local    message.Appender
	buckets  int
	cfg      WriterConfig

	mu sync.Mutex // guards shunned
	// shunned maps the ids of nodes that are not called to the time when each last refused or did not
	// answer. It may hold ids for which Shun has passed.
	shunned map[string]time.Time
}

var _ message.Appender = (*Writer)(nil)

// NewWriter creates a Writer over this node's own writer, local. buckets is the number of buckets
// that have homes: message.Buckets on every node.
func NewWriter(endpoint *cluster.Endpoint, owners Owners, local message.Appender, buckets int, cfg WriterConfig) *Writer {
	cfg.Wait = cmp.Or(cfg.Wait, 500*time.Millisecond)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 3*time.Second)
	cfg.Shun = cmp.Or(cfg.Shun, time.Second)
	cfg.PieceBytes = cmp.Or(cfg.PieceBytes, 512<<10)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.OnForward == nil {
		cfg.OnForward = func(string) {}
	}
	w := &Writer{
		Handlers: endpoint.Handlers(), endpoint: endpoint, owners: owners, local: local, buckets: buckets, cfg: cfg,
		shunned: make(map[string]time.Time),
	}
	cluster.Handle(w.Handlers, appendDrafts, w.serve)
	return w
}

// Append appends drafts and returns an outcome for each, in order, with the guarantees of
// message.Writer.Append. It blocks until all have one. Drafts must have their message ids. An entry
// that the home may have received, and that this node then failed to write itself for now, gets
// OUTCOME_UNKNOWN: the home may still write it.
func (w *Writer) Append(ctx context.Context, drafts []message.Draft) []message.Outcome {
	owners := make([]string, len(drafts))
	byOwner := make(map[string]*forward, 1)
	homes := make(map[int]string, 1)
	for i := range drafts {
		bucket := message.Bucket(drafts[i].ChannelID, w.buckets)
		owner, ok := homes[bucket] // once per bucket: the answer may change, and a channel must not be split
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

// shuns reports whether a node refused or did not answer less than Shun ago, so that it must not be
// called.
func (w *Writer) shuns(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.shunned[node]
	if ok && time.Since(at) >= w.cfg.Shun {
		delete(w.shunned, node)
		ok = false
	}
	return ok
}

func (w *Writer) shun(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for other, at := range w.shunned { // nodes that are gone forever are never checked by shuns
		if now.Sub(at) >= w.cfg.Shun {
			delete(w.shunned, other)
		}
	}
	w.shunned[node] = now
}

// serve appends drafts for another node.
func (w *Writer) serve(ctx context.Context, r *clusterv1.AppendRequest) (*clusterv1.AppendResponse, error) {
	drafts, err := draftsFromWire(r.GetDrafts())
	if err != nil {
		return nil, err
	}
	response := &clusterv1.AppendResponse{}
	for _, out := range w.local.Append(ctx, drafts) {
		response.Outcomes = append(response.Outcomes, outcomeToWire(&out))
	}
	return response, nil
}
