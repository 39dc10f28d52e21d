package message

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// Draft is an entry to append: everything except its position in the log.
type Draft struct {
	Kind      Kind
	ChannelID string
	// MsgID is the id of the new message, or of the target of a change.
	MsgID       string
	FromID      string
	MsgType     string
	Content     string
	Metadata    map[string]string
	ClientMsgID string
	// Open makes a new message StatusOpen.
	Open bool
	// TargetType is the MsgType that the target of a change must have; empty means any. It restricts
	// changes by the users of sessions.
	TargetType string
	// AnySender allows a change of another user's message. It is never set for edits.
	AnySender   bool
	Traceparent string
	// Rev is the access revision of the channel at which the sender was checked. A draft with a lower
	// one than the log's last entry is handed back; see Outcome.StaleRev.
	Rev int64
}

// Outcome is the result of appending a draft.
type Outcome struct {
	ChannelID, MsgID, ClientMsgID string
	Seq, Count                    int64
	// MsgTime is when the entry was appended. MsgTime and Count are zero for a recall of a message
	// that an earlier recall, with another client key, has recalled.
	MsgTime   time.Time
	Duplicate bool
	// StaleRev is not 0 if the draft was not stored because the channel has been closed or opened
	// since its sender was checked: it is the access revision at which to check the sender again. Err
	// is set too.
	StaleRev int64
	// Err is nil or a *fault.Error.
	Err error
}

// WriterConfig sets a writer's limits. Zero values mean the defaults.
type WriterConfig struct {
	// MaxBatch is the maximum number of entries in one insert. The default is 1000.
	MaxBatch int
	// MaxBatchBytes limits the content of one insert: the entry that reaches it is the last. The
	// default is 4 MiB.
	MaxBatchBytes int
	// MaxQueue is the maximum number of pending drafts in one shard. An append that would exceed it
	// fails with resource_exhausted, for all its drafts of the channel. The default is 20,000.
	MaxQueue int
	// MaxQueueBytes is the maximum number of bytes of the pending drafts in all shards: texts,
	// metadata, and 512 for each draft. An append that would exceed it fails like one that exceeds
	// MaxQueue. The default is 128 MiB.
	MaxQueueBytes int
	// AppendTimeout is how long an append keeps trying before it fails as unavailable. The caller's
	// deadline applies too. The default is 10 s.
	AppendTimeout time.Duration
	// CallTimeout bounds one call of the store. The default is 5 s.
	CallTimeout time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// OnInsert is called after every insert, for metrics; may be nil.
	OnInsert func(entries int, took time.Duration, err error)
	Logger   *slog.Logger
}

func (c *WriterConfig) setDefaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxBatch, 1000)
	def(&c.MaxBatchBytes, 4<<20)
	def(&c.MaxQueue, 20_000)
	def(&c.MaxQueueBytes, 128<<20)
	if c.AppendTimeout == 0 {
		c.AppendTimeout = 10 * time.Second
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnInsert == nil {
		c.OnInsert = func(int, time.Duration, error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Writer numbers entries and group-commits them: each shard has one ordered insert at a time, of
// all entries that have gathered meanwhile. The unique indexes of the store decide conflicts; the
// ends of logs that the writer remembers are only a cache, and an error drops them. It is safe for
// concurrent use.
type Writer struct {
	cfg   WriterConfig
	lanes []*lane
	life  lifecycle.Base
}

// errStopping is the cause of appends that fail because the writer is stopping or not started. Stop
// also cancels the writer's store calls with it.
var errStopping = errors.New("writer is stopping")

// NewWriter returns a writer for the store's shards. It refuses appends until Start. Stop it
// before the store is closed.
func NewWriter(store LogWriter, shards int, cfg WriterConfig) *Writer {
	cfg.setDefaults()
	w := &Writer{cfg: cfg}
	resolvers := make(chan struct{}, 64)
	pending := &byteBudget{max: int64(cfg.MaxQueueBytes)}
	for b := range shards {
		w.lanes = append(w.lanes, newLane(store, b, &w.cfg, resolvers, pending))
	}
	return w
}

// Start starts accepting appends. See lifecycle.Service.
func (w *Writer) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		ctx, stop := context.WithCancelCause(run.Context())
		run.OnStop(func(ctx context.Context) error {
			err := w.drain(ctx, run)
			stop(errStopping)
			for _, l := range w.lanes {
				l.abort()
			}
			return err
		})
		run.OnEnd(func(context.Context) error {
			for _, l := range w.lanes {
				l.background.Wait()
			}
			return nil
		})
		for _, l := range w.lanes {
			l.open(ctx)
			run.Go(func(context.Context) { l.run() })
		}
		return nil
	})
}

// Stop refuses new appends and waits for pending ones until ctx ends. It then fails the rest as
// unavailable.
func (w *Writer) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// drain refuses new appends and waits until none are pending. It returns the cause of ctx if ctx
// ends first.
func (w *Writer) drain(ctx context.Context, run *lifecycle.Run) error {
	for _, l := range w.lanes {
		l.close()
	}
	idle := make(chan struct{})
	run.Go(func(context.Context) {
		for _, l := range w.lanes {
			l.waitIdle()
		}
		close(idle)
	})
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Append appends drafts and returns an outcome for each, in order. It returns once the stored
// drafts are durable and the targets of edits and recalls are changed.
//
// Drafts of one channel are appended in order. Except for drafts that are refused permanently, the
// stored ones are a prefix of those given.
//
// If ctx or the writer's AppendTimeout ends first, drafts that may have been stored, and the later
// ones of their channel, fail with OUTCOME_UNKNOWN. If none of a channel's pending drafts can have
// been stored, the first fails with the cause, as unavailable or deadline_exceeded, and the others
// with BATCH_ABORTED.
func (w *Writer) Append(ctx context.Context, drafts []Draft) []Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.AppendTimeout, errAppendTimeout)
	defer cancel()

	var requests []*request
	byChannel := make(map[string]*request, 1)
	items := make([]*item, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		r := byChannel[d.ChannelID]
		if r == nil {
			r = &request{lane: w.lanes[Shard(d.ChannelID, len(w.lanes))], channelID: d.ChannelID, done: make(chan struct{})}
			byChannel[d.ChannelID] = r
			requests = append(requests, r)
		}
		items[i] = &item{Draft: d}
		r.items = append(r.items, items[i])
	}
	for _, r := range requests {
		r.lane.enqueue(r)
	}
	for _, r := range requests {
		select {
		case <-r.done:
		case <-ctx.Done():
			r.lane.cancel(r, context.Cause(ctx))
		}
	}
	outs := make([]Outcome, len(drafts))
	for i, it := range items {
		outs[i] = it.out
		outs[i].ChannelID = it.ChannelID
	}
	return outs
}

var errAppendTimeout = errors.New("append timeout")

// request holds the drafts of one Append for one channel. Its lane's lock guards it until done is
// closed.
type request struct {
	lane      *lane
	channelID string
	items     []*item
	// settledPrefix counts the items, from the front, that have their outcome.
	settledPrefix int
	// maybeStored is true once an insert with some of the items has failed, and may have stored them
	// all the same.
	maybeStored bool
	// inFlight is true while an insert contains some of the items.
	inFlight bool
	// ended is true once every item has its outcome. The lane then drops the request.
	ended bool
	done  chan struct{}
}

// item is one draft being appended.
type item struct {
	*Draft
	out     Outcome
	settled bool
	// insertFailed is true if an insert with this item failed, except because of another channel's
	// conflict.
	insertFailed bool
	// checked is true once the channel's state includes this item's target, and shows that its
	// client key is unused, as of the channel's head.
	checked bool
	// stored is true for an edit or a recall that is in the log. It gets its outcome once its target
	// is changed too.
	stored bool
}

func (it *item) key() ClientKey { return ClientKey{FromID: it.FromID, ClientMsgID: it.ClientMsgID} }

// settle sets the outcome of an item, unless it has one. With the last outcome it closes done. The
// caller holds the lane's lock.
func (r *request) settle(it *item, out Outcome) {
	if it.settled {
		return
	}
	it.out, it.settled = out, true
	for r.settledPrefix < len(r.items) && r.items[r.settledPrefix].settled {
		r.settledPrefix++
	}
	if r.settledPrefix == len(r.items) && !r.ended {
		close(r.done)
		r.ended = true
	}
}

// fail ends a request early. If none of the items without an outcome can have been stored, the
// first fails with a fault that wraps cause and the others with BATCH_ABORTED; otherwise all fail
// with OUTCOME_UNKNOWN. stopping makes the first fail with SHUTTING_DOWN instead.
func (r *request) fail(cause error, stopping bool) {
	first := true
	for _, it := range r.items {
		if it.settled {
			continue
		}
		var err error
		switch {
		case r.maybeStored || r.inFlight || it.stored:
			r.maybeStored = true // items after one of unknown outcome are unknown too
			err = OutcomeUnknown(cause)
		case !first:
			err = BatchAborted(cause)
		case stopping:
			err = fault.Wrap(cause, fault.Unavailable, fault.ShuttingDown, "the server is shutting down; nothing was stored")
		case errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, context.Canceled):
			err = fault.Wrap(cause, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; nothing was stored")
		default:
			err = cause
			if f, ok := fault.As(cause); !ok || f.Reason != fault.RateLimited { // RATE_LIMITED is the lane's own error
				err = fault.Wrap(cause, fault.Unavailable, fault.StoreUnavailable, "the store did not answer; nothing was stored")
			}
		}
		first = false
		it.settled, it.out = true, Outcome{Err: err}
	}
	r.settledPrefix = len(r.items)
	if !r.ended {
		r.ended = true
		close(r.done)
	}
}

func (e *Entry) outcome(duplicate bool) Outcome {
	return Outcome{
		MsgID: e.MsgID, ClientMsgID: e.ClientMsgID, Seq: e.Seq, Count: e.Count, MsgTime: e.MsgTime, Duplicate: duplicate,
	}
}
