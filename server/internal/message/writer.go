package message

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// Draft is an entry that somebody asks to have appended: all but its place in the log.
type Draft struct {
	Kind      Kind
	ChannelID string
	// MsgID is the new message's id, or the target's for an edit or a recall.
	MsgID       string
	FromID      string
	MsgType     string
	Content     string
	Metadata    map[string]string
	ClientMsgID string
	// AnySender lets a recall take back another's message.
	AnySender   bool
	Traceparent string
}

// Outcome is what became of a draft.
type Outcome struct {
	ChannelID, MsgID, ClientMsgID string
	Seq, Count                    int64
	// MsgTime is zero where the outcome is another call's recall.
	MsgTime   time.Time
	Duplicate bool
	// Err is nil, or a *fault.Error.
	Err error
}

// WriterConfig sets a writer's limits; zero values mean the defaults.
type WriterConfig struct {
	// MaxBatch is the most entries in one insert: 1000.
	MaxBatch int
	// MaxBatchBytes is the most content in one insert: 4 MiB.
	MaxBatchBytes int
	// MaxQueue is the most items that wait in one bucket: 20,000. More are refused with resource_exhausted.
	MaxQueue int
	// Patience is how long an append goes on trying before it answers unavailable: 10 s, or the caller's deadline.
	Patience time.Duration
	// CallTimeout bounds one call of the store: 5 s.
	CallTimeout time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// OnInsert is told of every insert's size, for metrics; may be nil.
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
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
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

// Writer gives entries their places and group-commits them: one ordered insert at a time per bucket, of everything that
// has gathered meanwhile. The store's unique indexes decide what is true; the writer's heads are only a good guess, and
// any error forgets them. Safe for concurrent use.
type Writer struct {
	cfg   WriterConfig
	lanes []*lane
	life  lifecycle.Base
}

// errStopping ends the writer's store calls at Stop.
var errStopping = errors.New("writer is stopping")

// NewWriter makes a writer of the store's buckets, which refuses appends until Start. Stop it before the store is closed.
func NewWriter(store LogWriter, buckets int, cfg WriterConfig) *Writer {
	cfg.setDefaults()
	w := &Writer{cfg: cfg}
	resolvers := make(chan struct{}, 64)
	for b := range buckets {
		w.lanes = append(w.lanes, newLane(store, b, &w.cfg, resolvers))
	}
	return w
}

// Start begins to take appends. See lifecycle.Service.
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
				l.side.Wait()
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

// Stop refuses new appends, lets what is queued finish until ctx ends, then answers the rest unavailable.
func (w *Writer) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// drain refuses new appends and waits until nothing is queued. It returns ctx's error if that ends before.
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

// Append appends drafts and answers an outcome for each, in order, once those stored are durable and the targets of
// edits and recalls are changed. Drafts of one channel are appended in order, and what is stored of them is a prefix but
// for drafts refused for good. When ctx or the writer's patience ends first, what was never tried is unavailable with
// nothing stored, and what may have been stored is unavailable with OUTCOME_UNKNOWN.
func (w *Writer) Append(ctx context.Context, drafts []Draft) []Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.Patience, errPatience)
	defer cancel()

	var requests []*request
	byChannel := make(map[string]*request, 1)
	items := make([]*item, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		r := byChannel[d.ChannelID]
		if r == nil {
			r = &request{lane: w.lanes[Bucket(d.ChannelID, len(w.lanes))], channelID: d.ChannelID, done: make(chan struct{})}
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
			r.lane.abandon(r, context.Cause(ctx))
		}
	}
	outs := make([]Outcome, len(drafts))
	for i, it := range items {
		outs[i] = it.out
		outs[i].ChannelID = it.ChannelID
	}
	return outs
}

var errPatience = errors.New("the store took too long")

// request is the drafts of one Append for one channel. Its lane's lock guards it until done is closed.
type request struct {
	lane      *lane
	channelID string
	items     []*item
	// settled counts the items from the front that have their outcome.
	settled int
	// tried is true once any item was handed to an insert whose outcome is not known to be nothing.
	tried bool
	// inFlight is true while an insert holds some of the items.
	inFlight bool
	// failed is true once the request ended early; the lane drops it.
	failed bool
	done   chan struct{}
}

// item is one draft on its way.
type item struct {
	*Draft
	out     Outcome
	settled bool
	// tried is true if an insert with this item ended without saying that nothing was stored.
	tried bool
	// checked is true once the channel's state held this item's repeat (absent) and target, as of the channel's head.
	checked bool
	// stored is true from the insert's success until the target is changed.
	stored bool
}

func (it *item) key() ClientKey { return ClientKey{FromID: it.FromID, ClientMsgID: it.ClientMsgID} }

// settle gives an item its outcome. The lane's lock is held.
func (r *request) settle(it *item, out Outcome) {
	if it.settled {
		return
	}
	it.out, it.settled = out, true
	for r.settled < len(r.items) && r.items[r.settled].settled {
		r.settled++
	}
	if r.settled == len(r.items) && !r.failed {
		close(r.done)
		r.failed = true
	}
}

// fail ends a request early: the first open item gets the fault, and the later ones what follows from it.
func (r *request) fail(cause error, stopping bool) {
	first := true
	for _, it := range r.items {
		if it.settled {
			continue
		}
		var err error
		switch {
		case r.tried || r.inFlight || it.stored:
			r.tried = true // the items after one of unknown outcome are unknown too
			err = fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
				"it is not known whether the entry was stored: repeat with the same client_msg_id")
		case !first:
			err = fault.Wrap(cause, fault.Aborted, fault.BatchAborted,
				"an earlier item of the channel failed; nothing of this one was stored")
		case stopping:
			err = fault.Wrap(cause, fault.Unavailable, fault.ShuttingDown, "the server is shutting down; nothing was stored")
		case errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, context.Canceled):
			err = fault.Wrap(cause, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; nothing was stored")
		default:
			err = fault.Wrap(cause, fault.Unavailable, fault.StoreUnavailable, "the store did not answer; nothing was stored")
		}
		first = false
		it.settled, it.out = true, Outcome{Err: err}
	}
	r.settled = len(r.items)
	if !r.failed {
		r.failed = true
		close(r.done)
	}
}

func (e *Entry) outcome(duplicate bool) Outcome {
	return Outcome{
		MsgID: e.MsgID, ClientMsgID: e.ClientMsgID, Seq: e.Seq, Count: e.Count, MsgTime: e.MsgTime, Duplicate: duplicate,
	}
}
