package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// mirrorEvery is the minimum time between two writes to the mirror, and mirrorWait the maximum
	// time of one. mirrorBatch and mirrorBytes bound a write.
	mirrorEvery = 100 * time.Millisecond
	mirrorWait  = 500 * time.Millisecond
	mirrorBatch = 256
	mirrorBytes = 4 << 20
	// loadWait bounds the reads before the first delta of a generation on this node.
	loadWait = 500 * time.Millisecond
	// checkEvery is how often the status of a message is read while its text grows, and checks the
	// number of concurrent reads.
	checkEvery = 5 * time.Second
	checks     = 8
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

// Piece is a delta of a message of a channel.
type Piece struct {
	ChannelID string
	message.Delta
}

// Mirror keeps the texts of open messages where all nodes find them: for subscribers that join
// late, and for the close of a message whose generator has died. It may lose them. It is safe for
// concurrent use.
type Mirror interface {
	// Put appends the pieces to their texts and sets the time of their last delta. It returns for each
	// the number of bytes that the mirror has of the text then. If that is less than the piece's
	// Offset, nothing was appended. If the mirror has a higher attempt or too many texts of the
	// session, it is MirrorRefused.
	Put(ctx context.Context, pieces []Piece) ([]int, error)
	// Texts returns the texts of a channel, at most message.MaxOpenTexts.
	Texts(ctx context.Context, channelID string) ([]message.OpenText, error)
	// Ages returns OpenText.Age of messages, of which only ChannelID and MsgID are used; a negative
	// one if there is no text.
	Ages(ctx context.Context, of []Piece) ([]time.Duration, error)
	// Drop deletes the texts of messages of a session.
	Drop(ctx context.Context, channelID string, msgIDs ...string) error
	// DropAll deletes the texts of a session.
	DropAll(ctx context.Context, channelID string) error
}

// MirrorRefused is a result of Mirror.Put.
const MirrorRefused = -1

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

	mu         sync.Mutex // guards the fields below; taken before generation.mu
	byTarget   map[target]*generation
	perSubject map[string]int
	bytes      int
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
		return attempt
	}
	g, err := s.get(t, subject, trusted)
	if err != nil {
		return attempt // its first delta reports it
	}
	g.mu.Lock()
	g.seq, g.loaded, g.last, g.checked = seq, true, time.Now(), time.Now()
	g.restart(attempt) // the mirror knows from when on it is idle
	g.mu.Unlock()
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
		length, status, err = s.appendTo(g, d)
		g.mu.Unlock()
		if err == nil && status == message.StatusOpen {
			s.hint()
		}
		return length, status, err
	}
}

// appendTo is append for a generation whose mu is held: its deltas are published in order.
func (s *Generations) appendTo(g *generation, d *message.Delta) (length int, status message.Status, err error) {
	if g.phase != growing {
		return len(g.text), g.status, nil
	}
	length, rest, err := g.append(d, s.cfg.MaxText)
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
		return nil, fault.OverLimit(maxPerSubject, "a user can stream at most %d open messages on one node")
	}
	if s.size() >= s.cfg.MaxBytes {
		return nil, fault.OverLimit(int64(s.cfg.MaxBytes), "the open messages on this node have at most %d bytes")
	}
	g := &generation{target: t, subject: subject, status: message.StatusOpen, last: time.Now()}
	s.byTarget[t] = g
	s.perSubject[subject]++
	return g, nil
}

// size returns what the texts count as. mu is held.
func (s *Generations) size() int { return s.bytes + textCost*len(s.byTarget) }

// load reads what other nodes have left of a message, without whose mirror the text begins anew.
func (s *Generations) load(ctx context.Context, g *generation, seq int64) error {
	status, err := s.status(ctx, g.target, seq)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	known, ok := s.known(ctx, g.target)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.checked = time.Now()
		if status != message.StatusOpen {
			g.move(over, status)
		}
	}
	if ok {
		g.adopt(&known)
	}
	g.loaded = true
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

// Freeze ends the growth of a text, because its message is being cancelled. It returns the text; ok
// is false if this node has none.
func (s *Generations) Freeze(channelID, msgID string) (text message.OpenText, ok bool) {
	t := target{channelID, msgID}
	s.move(t, frozen, message.StatusCancelled)
	return s.local(t)
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
	g := s.byTarget[t]
	s.mu.Unlock()
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.move(to, status)
}

// hint wakes the goroutine that writes the mirror.
func (s *Generations) hint() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// all returns the generations, and updates the number of their bytes.
func (s *Generations) all() []*generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, size := make([]*generation, 0, len(s.byTarget)), 0
	for _, g := range s.byTarget {
		all = append(all, g)
		g.mu.Lock()
		size += len(g.text)
		g.mu.Unlock()
	}
	s.bytes = size
	return all
}

// mirror writes the mirror until ctx ends.
func (s *Generations) mirror(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.flush(ctx)
		if lifecycle.Pause(ctx, mirrorEvery) != nil {
			return
		}
	}
}

// flush writes to the mirror what it lacks.
func (s *Generations) flush(ctx context.Context) {
	var (
		batch  []*generation
		pieces []Piece
		size   int
	)
	put := func() {
		if len(batch) > 0 && !s.put(ctx, batch, pieces) {
			s.hint()
		}
		batch, pieces, size = nil, nil, 0
	}
	for _, g := range s.all() {
		g.mu.Lock()
		if g.stale && g.loaded && g.phase != over {
			text := string(g.text[g.mirrored:])
			batch, size = append(batch, g), size+len(text)
			pieces = append(pieces, Piece{g.channelID, message.Delta{
				MsgID: g.msgID, Seq: g.seq, Attempt: g.attempt, Offset: g.mirrored, Text: text,
			}})
			g.stale = false
		}
		g.mu.Unlock()
		if len(batch) == mirrorBatch || size >= mirrorBytes {
			put()
		}
	}
	put()
}

// put writes pieces of generations to the mirror. It reports false if some must be written again.
func (s *Generations) put(ctx context.Context, batch []*generation, pieces []Piece) bool {
	ctx, cancel := context.WithTimeout(ctx, mirrorWait)
	defer cancel()
	lengths, err := s.cfg.Mirror.Put(ctx, pieces)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.cfg.Logger.WarnContext(ctx, "the mirror of open texts cannot be written", "error", err)
	}
	done := err == nil
	var late []target
	for i, g := range batch {
		g.mu.Lock()
		switch {
		case g.phase == over:
			late = append(late, g.target)
		case g.attempt != pieces[i].Attempt:
		case err != nil:
			g.stale = true
		case lengths[i] == MirrorRefused:
		default:
			if g.mirrored = min(lengths[i], len(g.text)); lengths[i] < pieces[i].Offset {
				g.stale, done = true, false // the mirror has lost it
			}
		}
		g.mu.Unlock()
	}
	for _, t := range late { // the builder of the cache may have dropped it before it was written
		s.drop(ctx, t)
	}
	return done
}

// drop deletes a text from the mirror.
func (s *Generations) drop(ctx context.Context, t target) {
	if err := s.cfg.Mirror.Drop(ctx, t.channelID, t.msgID); err != nil {
		s.cfg.Logger.WarnContext(ctx, "an open text cannot be dropped from the mirror", "channel_id", t.channelID, "error", err)
	}
}

// dropAll deletes the texts of a session from the mirror.
func (s *Generations) dropAll(ctx context.Context, channelID string) {
	ctx, cancel := context.WithTimeout(ctx, mirrorWait)
	defer cancel()
	if err := s.cfg.Mirror.DropAll(ctx, channelID); err != nil {
		s.cfg.Logger.WarnContext(ctx, "open texts cannot be dropped from the mirror", "channel_id", channelID, "error", err)
	}
}

// watch removes the generations that are idle and reads the status of the others, until ctx ends.
func (s *Generations) watch(ctx context.Context) {
	for lifecycle.Pause(ctx, time.Second) == nil {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(checks)
		for _, g := range s.all() {
			g.mu.Lock()
			idle := time.Since(g.last) > s.cfg.Idle
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
						s.drop(groupCtx, g.target) // what was written since the end
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
	g.removed = true
	g.mu.Unlock()
	delete(s.byTarget, g.target)
	if s.perSubject[g.subject]--; s.perSubject[g.subject] == 0 {
		delete(s.perSubject, g.subject)
	}
}
