package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// CloserConfig configures a Closer. The fields up to Log are required.
type CloserConfig struct {
	Generations *Generations
	Peers       Peers
	// Writer appends the closes.
	Writer message.Appender
	Mirror Mirror
	Log    Log
	// Shards is the number of shards of the store.
	Shards int
	// Owns reports whether this node looks after a shard. If two nodes do, the second close of a
	// message is refused. Nil means all.
	Owns func(shard int) bool
	// Timeout is how long an open message may be without a delta. The default is 60 s.
	Timeout time.Duration
	// Unknown is how long after its append an open message is closed at the latest if the mirror has
	// no text of it. The default is 15 minutes.
	Unknown time.Duration
	// Every is how often the Closer looks. The default is 5 s.
	Every time.Duration
	// Now returns the time of the messages. The default is time.Now.
	Now func() time.Time
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// abandonedKey begins the client_msg_id of a Closer's closes. It has a character that clients
// cannot send, so nobody can have used it.
const abandonedKey = "¶abandoned-"

// lostAfter is how many Timeouts old an open message without a text in the mirror must be in order
// to be closed because no node has its text.
const lostAfter = 3

// IdleFor returns a GenerationsConfig.Idle with which a Closer with the timeout still finds the
// text of a message on its node that the mirror has lost.
func IdleFor(timeout time.Duration) time.Duration { return max(2*time.Minute, (lostAfter+2)*timeout) }

// closerPage is the maximum number of open messages that a Closer reads in one call, and closes the
// maximum number that it closes concurrently.
const closerPage, closes = 1000, 32

// Closer closes the open messages whose generators have died, as failed and with the text of the
// mirror. It is a lifecycle.Service.
type Closer struct {
	cfg  CloserConfig
	life lifecycle.Base
	// began is when the Closer was started, or zero. Nodes that start together know no texts yet.
	began time.Time
}

// NewCloser returns a Closer. Start starts it.
func NewCloser(cfg CloserConfig) *Closer {
	cfg.Timeout, cfg.Unknown = cmp.Or(cfg.Timeout, time.Minute), cmp.Or(cfg.Unknown, 15*time.Minute)
	cfg.Every, cfg.Logger = cmp.Or(cfg.Every, 5*time.Second), cmp.Or(cfg.Logger, slog.Default())
	if cfg.Owns == nil {
		cfg.Owns = func(int) bool { return true }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Closer{cfg: cfg}
}

// Start starts to look after open messages. See lifecycle.Service.
func (c *Closer) Start(ctx context.Context) error {
	return c.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		c.began = time.Now()
		run.Go(func(ctx context.Context) {
			for lifecycle.Pause(ctx, c.cfg.Every) == nil {
				if err := c.look(ctx); err != nil && ctx.Err() == nil {
					c.cfg.Logger.WarnContext(ctx, "looking after open messages failed", "error", err)
				}
			}
		})
		return nil
	})
}

// Stop waits for the goroutine. See lifecycle.Service.
func (c *Closer) Stop(ctx context.Context) error { return c.life.Stop(ctx) }

// look closes the messages that are abandoned.
func (c *Closer) look(ctx context.Context) error {
	var shards []int
	for shard := range c.cfg.Shards {
		if c.cfg.Owns(shard) {
			shards = append(shards, shard)
		}
	}
	if len(shards) == 0 {
		return nil
	}
	now := c.cfg.Now()
	var failed error
	for from := (time.Time{}); ctx.Err() == nil; {
		open, err := c.cfg.Log.OpenMessages(ctx, shards, from, now.Add(-c.cfg.Timeout), closerPage)
		if err != nil {
			return errors.Join(failed, err)
		}
		failed = errors.Join(failed, c.closeAbandoned(ctx, now, open))
		if len(open) < closerPage {
			return failed
		}
		next := open[len(open)-1].MsgTime
		if next.Equal(open[0].MsgTime) { // others of this time are read once these are closed
			next = next.Add(time.Millisecond)
		}
		from = next
	}
	return failed
}

// closeAbandoned closes those of the open messages that are abandoned.
func (c *Closer) closeAbandoned(ctx context.Context, now time.Time, open []message.Entry) error {
	if len(open) == 0 {
		return nil
	}
	ages, err := c.ages(ctx, open)
	failed := make([]error, len(open)) // one that cannot be closed does not keep the others open
	var group errgroup.Group
	group.SetLimit(closes)
	for i := range open {
		e := &open[i]
		old := now.Sub(e.MsgTime) > c.cfg.Unknown
		lost := err == nil && ages[i] < 0
		// The nodes know whether the generator of a text lives that the mirror has lost, except for one
		// whose open is not answered yet, and for nodes that have just started.
		early := now.Sub(e.MsgTime) < lostAfter*c.cfg.Timeout || time.Since(c.began) < c.cfg.Timeout
		switch {
		case err != nil && !old, lost && early && !old, err == nil && !lost && ages[i] < c.cfg.Timeout:
			continue
		}
		if ctx.Err() != nil {
			break
		}
		overdue := old || err == nil && ages[i] >= 2*c.cfg.Timeout
		group.Go(func() error {
			failed[i] = c.close(ctx, e, overdue)
			return nil
		})
	}
	_ = group.Wait() // never an error
	return errors.Join(err, errors.Join(failed...))
}

func (c *Closer) ages(ctx context.Context, open []message.Entry) ([]time.Duration, error) {
	of := make([]Piece, len(open))
	for i := range open {
		of[i] = Piece{open[i].ChannelID, message.Delta{MsgID: open[i].MsgID}}
	}
	ages, err := c.cfg.Mirror.Ages(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("read the ages of open texts: %w", err)
	}
	return ages, nil
}

// close closes a message as failed, with what is known of its text, unless its generator is alive.
// If not all nodes answer, it is closed only if it is long overdue.
func (c *Closer) close(ctx context.Context, e *message.Entry, old bool) error {
	t := target{e.ChannelID, e.MsgID}
	here, ok := c.cfg.Generations.local(t)
	there, found, err := c.cfg.Peers.Peek(ctx, e.ChannelID, e.MsgID)
	switch {
	case ok && here.Age < c.cfg.Timeout, found && there.Age < c.cfg.Timeout, err != nil && !old:
		return nil // the mirror is behind, or may be
	}
	m, err := c.cfg.Log.Message(ctx, e.ChannelID, e.MsgID, e.Seq)
	if f, ok := fault.As(err); ok && f.Kind == fault.NotFound {
		return nil
	}
	if err != nil || m.Status != message.StatusOpen {
		return err // closed meanwhile
	}
	content := m.Content
	text, _ := c.cfg.Generations.known(ctx, t)
	if found && Longer(&there, &text) {
		text = there
	}
	if text.Text != "" {
		content = text.Text
	}
	out := c.cfg.Writer.Append(ctx, []message.Draft{{
		Kind: message.KindFail, ChannelID: e.ChannelID, MsgID: e.MsgID, Content: content, FromID: m.FromID, AnySender: true,
		ClientMsgID: abandonedKey + e.MsgID, Rev: m.Rev,
	}})[0]
	switch f, ok := fault.As(out.Err); {
	case out.Err == nil:
		c.cfg.Generations.Ended(e.ChannelID, e.MsgID, message.StatusFailed)
		c.cfg.Peers.Ended(e.ChannelID, e.MsgID, message.StatusFailed)
		c.cfg.Logger.InfoContext(ctx, "closed an open message whose generator has stopped", "channel_id", e.ChannelID, "msg_id", e.MsgID)
		return nil
	case ok && (f.Kind == fault.FailedPrecondition || f.Kind == fault.NotFound):
		return nil // closed, recalled or deleted meanwhile
	default:
		return fmt.Errorf("close an abandoned message: %w", out.Err)
	}
}
