package session

import (
	"context"
	"errors"
	"time"

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
	// warnEvery is the minimum time between two logs of writes that failed.
	warnEvery = time.Minute
)

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

// hint wakes the goroutine that writes the mirror.
func (s *Generations) hint() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
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

// flush writes to the mirror what it lacks, and drops the texts that are over: the builder of the
// cache may have done so before this node wrote them.
func (s *Generations) flush(ctx context.Context) {
	var (
		batch  []*generation
		pieces []Piece
		size   int
		ended  []*generation
	)
	put := func() {
		if len(batch) > 0 && !s.put(ctx, batch, pieces) {
			s.hint()
		}
		batch, pieces, size = nil, nil, 0
	}
	for _, g := range s.all() {
		g.mu.Lock()
		switch {
		case !g.stale, !g.loaded && g.phase != over:
		case g.phase == over:
			ended, g.stale = append(ended, g), false
		default:
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
	if !s.dropEnded(ctx, ended) {
		s.hint()
	}
}

// put writes pieces of generations to the mirror. It reports false if some must be written again.
func (s *Generations) put(ctx context.Context, batch []*generation, pieces []Piece) bool {
	ctx, cancel := context.WithTimeout(ctx, mirrorWait)
	defer cancel()
	lengths, err := s.cfg.Mirror.Put(ctx, pieces)
	s.warn(ctx, err)
	done := err == nil
	for i, g := range batch {
		g.mu.Lock()
		switch {
		case g.phase == over:
			g.stale, done = true, false
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
	return done
}

// dropEnded drops texts from the mirror. It reports false if some must be dropped again, which is
// tried until their generations are removed.
func (s *Generations) dropEnded(ctx context.Context, ended []*generation) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, mirrorWait)
	defer cancel()
	for i, g := range ended {
		if err := s.cfg.Mirror.Drop(ctx, g.channelID, g.msgID); err != nil {
			s.warn(ctx, err)
			for _, g := range ended[i:] {
				g.mu.Lock()
				g.stale = true
				g.mu.Unlock()
			}
			return false
		}
	}
	return true
}

// warn logs that a write to the mirror failed, at most every warnEvery. Only the goroutine of
// flush calls it.
func (s *Generations) warn(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && time.Since(s.warnedAt) > warnEvery {
		s.warnedAt = time.Now()
		s.cfg.Logger.WarnContext(ctx, "the mirror of open texts cannot be written", "error", err)
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
