package session

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// loadWait bounds the reads before the first delta of a generation on this node.
	loadWait = 500 * time.Millisecond
	// checkEvery is how often the status of a message is read while its text grows, and checks the
	// number of concurrent reads.
	checkEvery = 5 * time.Second
	checks     = 8
	// endedFor is how long after its last delta a generation is kept that is over.
	endedFor = 30 * time.Second
	// maxPerSubject is the number of open messages with text of one subject on a node, unless it may
	// manage their sessions.
	maxPerSubject = 64
)

// Bus carries the texts of open messages to the nodes with subscribers.
type Bus interface {
	// PublishDelta sends a delta to all nodes with subscribers of the channel, at most once. It does
	// not wait.
	PublishDelta(channelID string, d *message.Delta) error
}

// Log reads messages.
type Log interface {
	message.OpenLister
	// Message returns a message in its current state; see message.Reader.Message.
	Message(ctx context.Context, channelID, msgID string, atLeast int64) (message.Message, error)
}

// GenerationsConfig configures Generations. Bus, Mirror and Log are required.
type GenerationsConfig struct {
	Bus    Bus
	Mirror Mirror
	Log    Log
	// MaxText is the maximum size of a text in bytes. The default is 128 KiB.
	MaxText int
	// MaxBytes bounds the texts on this node, each of which counts as at least 1 KiB. The default is
	// 128 MiB.
	MaxBytes int
	// Idle is how long a generation without deltas is kept. The default is 2 minutes.
	Idle time.Duration
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Generations holds the texts of open messages whose generators send them to this node. It
// publishes them and keeps the mirror up to date. It is a lifecycle.Service, and safe for
// concurrent use.
type Generations struct {
	cfg  GenerationsConfig
	life lifecycle.Base
	wake chan struct{} // a text is stale in the mirror

	warnedAt time.Time // when a failed write was logged; only flush uses it

	bytes atomic.Int64 // of all texts

	mu         sync.Mutex // guards the fields below; taken before generation.mu
	byTarget   map[target]*generation
	perSubject map[string]int // the generations that are not over
}

// textCost is what a generation counts as besides its text.
const textCost = 1 << 10

// NewGenerations returns a Generations. Start starts it.
func NewGenerations(cfg GenerationsConfig) *Generations {
	cfg.MaxText, cfg.MaxBytes = cmp.Or(cfg.MaxText, 128<<10), cmp.Or(cfg.MaxBytes, 128<<20)
	cfg.Idle, cfg.Logger = cmp.Or(cfg.Idle, 2*time.Minute), cmp.Or(cfg.Logger, slog.Default())
	return &Generations{
		cfg: cfg, wake: make(chan struct{}, 1), byTarget: map[target]*generation{}, perSubject: map[string]int{},
	}
}

// Start starts to write the mirror. See lifecycle.Service.
func (s *Generations) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(s.mirror)
		run.Go(s.watch)
		run.OnEnd(func(ctx context.Context) error {
			s.flush(ctx) // another node goes on with the texts
			return nil
		})
		return nil
	})
}

// Stop writes the mirror once more. See lifecycle.Service.
func (s *Generations) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

// begin returns the attempt of a generator that has opened a message. If fresh is set, no other
// can have done so before.
func (s *Generations) begin(ctx context.Context, t target, seq int64, subject string, trusted, fresh bool) (attempt int64) {
	attempt = time.Now().UnixMicro()
	if !fresh {
		if known, ok := s.known(ctx, t); ok {
			attempt = max(attempt, known.Attempt+1)
		}
	}
	g, err := s.get(t, subject, trusted)
	if err != nil {
		return attempt // its first delta reports it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase != growing || attempt <= g.attempt {
		return attempt
	}
	now := time.Now()
	s.bytes.Add(-int64(len(g.text)))
	g.seq, g.loaded, g.last, g.checked, g.loadedAt = seq, true, now, now, now
	g.restart(attempt) // the mirror knows from when on it is idle
	s.hint()
	return attempt
}

// known returns what is known of the text of a message: here, or in the mirror.
func (s *Generations) known(ctx context.Context, t target) (message.OpenText, bool) {
	ctx, cancel := context.WithTimeout(ctx, loadWait)
	defer cancel()
	best, ok := s.local(t)
	texts, err := s.cfg.Mirror.Texts(ctx, t.channelID)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the mirror of open texts cannot be read", "error", err)
	}
	for _, text := range texts {
		if text.MsgID == t.msgID && (!ok || Longer(&text, &best)) {
			best, ok = text, true
		}
	}
	return best, ok
}

// Longer reports whether a is of a higher attempt than b, or of the same and longer.
func Longer(a, b *message.OpenText) bool {
	return a.Attempt > b.Attempt || a.Attempt == b.Attempt && len(a.Text) > len(b.Text)
}

// local returns the text that this node has of a message.
func (s *Generations) local(t target) (message.OpenText, bool) {
	s.mu.Lock()
	g := s.byTarget[t]
	s.mu.Unlock()
	if g == nil {
		return message.OpenText{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot(), true
}

// append appends a piece to the text of a message. It returns the number of bytes that the text has
// then, and the status of the message; unless that is StatusOpen, nothing was appended.
func (s *Generations) append(
	ctx context.Context, t target, d *message.Delta, subject string, trusted bool,
) (length int, status message.Status, err error) {
	for {
		g, err := s.get(t, subject, trusted)
		if err != nil {
			return 0, 0, err
		}
		g.mu.Lock()
		g.thaw()
		if !g.loaded {
			g.mu.Unlock()
			if err := s.load(ctx, g, d.Seq); err != nil {
				return 0, 0, err
			}
			g.mu.Lock()
		}
		if g.removed {
			g.mu.Unlock()
			continue
		}
		length, status, err = s.appendTo(g, d, trusted)
		if again := isHole(err) && time.Since(g.loadedAt) > mirrorEvery; again {
			g.loaded = false // another node may have more of the text by now
			g.mu.Unlock()
			continue
		}
		g.mu.Unlock()
		if err == nil && status == message.StatusOpen {
			s.hint()
		}
		return length, status, err
	}
}

func isHole(err error) bool {
	f, ok := fault.As(err)
	return ok && f.Kind == fault.OutOfRange
}

// appendTo is append for a generation whose mu is held: its deltas are published in order.
func (s *Generations) appendTo(
	g *generation, d *message.Delta, trusted bool,
) (length int, status message.Status, err error) {
	switch g.phase {
	case frozen:
		return 0, 0, fault.New(fault.Unavailable, fault.StoreUnavailable, "the message is being cancelled; nothing was appended; retry")
	case over:
		return g.length, g.status, nil
	case growing:
	}
	if err := s.room(len(d.Text), trusted); err != nil {
		return 0, 0, err
	}
	before := len(g.text)
	length, rest, err := g.append(d, s.cfg.MaxText)
	s.bytes.Add(int64(len(g.text) - before)) // a higher attempt begins anew
	if err != nil {
		return 0, 0, err
	}
	g.seq, g.last, g.stale = d.Seq, time.Now(), true
	// A delta that is lost is found by the next one's offset, at last by the close.
	_ = s.cfg.Bus.PublishDelta(g.channelID, &message.Delta{
		MsgID: g.msgID, Seq: d.Seq, Attempt: g.attempt, Offset: length - len(rest), Text: rest,
	})
	return length, message.StatusOpen, nil
}

// get returns the generation of a message, which it adds if there is none.
func (s *Generations) get(t target, subject string, trusted bool) (*generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.byTarget[t]; g != nil {
		return g, nil
	}
	if !trusted && s.perSubject[subject] >= maxPerSubject {
		f := fault.OverLimit(maxPerSubject, "msg_id: a user can stream at most %d open messages on one node")
		f.Field = "msg_id"
		return nil, f
	}
	if err := s.room(textCost*(len(s.byTarget)+1), trusted); err != nil {
		return nil, err
	}
	return s.add(t, subject), nil
}

// add adds a generation. mu is held.
func (s *Generations) add(t target, subject string) *generation {
	g := &generation{target: t, subject: subject, status: message.StatusOpen, last: time.Now()}
	s.byTarget[t] = g
	s.perSubject[subject]++
	return g
}

// room returns an error unless there is room for n bytes more. Users can use half of it.
func (s *Generations) room(n int, trusted bool) error {
	limit := int64(s.cfg.MaxBytes)
	if !trusted {
		limit /= 2
	}
	if s.bytes.Load()+int64(n) > limit {
		return fault.Full(limit, "the texts of open messages on this node have at most %d bytes")
	}
	return nil
}

// load reads what other nodes have left of a message, without whose mirror the text begins anew.
func (s *Generations) load(ctx context.Context, g *generation, seq int64) error {
	status, err := s.status(ctx, g.target, seq)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil && status != message.StatusOpen {
		s.move(g.target, over, status)
	}
	known, ok := s.known(ctx, g.target)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.checked = time.Now()
	}
	if ok && g.phase != over {
		before := len(g.text)
		g.adopt(&known)
		s.bytes.Add(int64(len(g.text) - before))
	}
	g.loaded, g.loadedAt = true, time.Now()
	return nil
}

// status reads the status of a message. One that does not exist any more is StatusRecalled.
func (s *Generations) status(ctx context.Context, t target, seq int64) (message.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, loadWait)
	defer cancel()
	m, err := s.cfg.Log.Message(ctx, t.channelID, t.msgID, seq)
	if f, ok := fault.As(err); ok && f.Kind == fault.NotFound {
		return message.StatusRecalled, nil
	}
	return m.Status, err
}

// Freeze ends the growth of a text for freezeFor, because its message is being cancelled, also if
// it begins here later. It returns the text; ok is false if this node has none.
func (s *Generations) Freeze(channelID, msgID string) (text message.OpenText, ok bool) {
	t := target{channelID, msgID}
	s.mu.Lock()
	known := s.byTarget[t] != nil
	if !known && s.room(textCost*(len(s.byTarget)+1), true) == nil {
		s.add(t, "")
	}
	s.mu.Unlock()
	s.move(t, frozen, message.StatusOpen)
	if !known {
		return message.OpenText{}, false
	}
	return s.local(t)
}

// Peek returns the text that this node has of a message.
func (s *Generations) Peek(channelID, msgID string) (text message.OpenText, ok bool) {
	return s.local(target{channelID, msgID})
}

// Ended sets the status of a message that is no longer open. An empty msgID means all messages of
// the channel.
func (s *Generations) Ended(channelID, msgID string, status message.Status) {
	if msgID != "" {
		s.move(target{channelID, msgID}, over, status)
		return
	}
	for _, g := range s.all() {
		if g.channelID == channelID {
			s.move(g.target, over, status)
		}
	}
}

func (s *Generations) move(t target, to phase, status message.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.byTarget[t]
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.move(to) || to != over {
		return
	}
	g.status, g.length = status, len(g.text)
	s.bytes.Add(-int64(len(g.text)))
	g.text, g.mirrored, g.stale = nil, 0, g.attempt > 0
	s.leave(g)
	s.hint()
}

// leave uncounts a generation of a subject. mu is held.
func (s *Generations) leave(g *generation) {
	if s.perSubject[g.subject]--; s.perSubject[g.subject] == 0 {
		delete(s.perSubject, g.subject)
	}
}

// all returns the generations.
func (s *Generations) all() []*generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byTarget))
}

// watch removes the generations that are idle and reads the status of the others, until ctx ends.
func (s *Generations) watch(ctx context.Context) {
	for lifecycle.Pause(ctx, time.Second) == nil {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(checks)
		for _, g := range s.all() {
			g.mu.Lock()
			idle := time.Since(g.last) > s.cfg.Idle || g.phase == over && time.Since(g.last) > endedFor
			check := g.loaded && g.phase != over && time.Since(g.checked) > checkEvery
			if check {
				g.checked = time.Now()
			}
			seq := g.seq
			g.mu.Unlock()
			if idle {
				s.remove(g)
			} else if check {
				group.Go(func() error {
					if status, err := s.status(groupCtx, g.target, seq); err == nil && status != message.StatusOpen {
						s.move(g.target, over, status)
					}
					return nil
				})
			}
		}
		_ = group.Wait() // never an error
	}
}

func (s *Generations) remove(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return
	}
	g.removed = true
	s.bytes.Add(-int64(len(g.text)))
	delete(s.byTarget, g.target)
	if g.phase != over {
		s.leave(g)
	}
}
