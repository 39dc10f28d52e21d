package retention

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// run looks at channels that have new entries or are due, until ctx ends.
func (t *Trimmer) run(ctx context.Context) {
	ticker := time.NewTicker(t.cfg.TouchedEvery)
	defer ticker.Stop()
	nextDue := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if err := t.lookAtTouched(ctx); err != nil {
			t.warn(ctx, "look at channels with new entries", err)
		}
		if time.Now().Before(nextDue) {
			continue
		}
		t.touchFailed()
		more, err := t.lookAtDue(ctx)
		if err != nil {
			t.warn(ctx, "look at due channels", err)
		}
		if !more || err != nil {
			nextDue = time.Now().Add(t.cfg.DueEvery)
		}
	}
}

func (t *Trimmer) warn(ctx context.Context, step string, err error) {
	if ctx.Err() == nil {
		t.cfg.Logger.WarnContext(ctx, "retention step failed", "step", step, "error", err)
	}
}

// lookAtTouched looks at the touched channels, also if another node owns them by now: that one may
// have looked before they were touched. After an error they are touched again.
func (t *Trimmer) lookAtTouched(ctx context.Context) error {
	ids := t.takeTouched()
	for len(ids) > 0 {
		n := min(len(ids), passPage)
		rows, err := t.cfg.Rows.Rows(ctx, ids[:n])
		if err == nil {
			some := make([]channel.Row, 0, len(rows))
			for _, row := range rows {
				some = append(some, row)
			}
			err = t.lookAt(ctx, some)
		}
		if err != nil {
			for _, id := range ids {
				t.touch(id)
			}
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// lookAtDue looks at the channels that are due, at most duePage of each shard. more reports
// whether there may be others.
func (t *Trimmer) lookAtDue(ctx context.Context) (more bool, err error) {
	now, err := t.cfg.Clock(ctx)
	if err != nil {
		return false, err
	}
	for shard := range t.cfg.Shards {
		if t.cfg.Owner != nil && !t.cfg.Owner.Owns(shard) {
			continue
		}
		rows, err := t.cfg.Rows.Due(ctx, shard, now, duePage)
		if err != nil {
			return false, err
		}
		if err := t.lookAt(ctx, rows); err != nil {
			return false, err
		}
		more = more || len(rows) == duePage
	}
	return more, nil
}

// lookAt looks at channels. Those for which that fails are due or touched again later, so that none
// holds up others. It returns an error only if it could not read the clock.
func (t *Trimmer) lookAt(ctx context.Context, rows []channel.Row) error {
	if len(rows) == 0 {
		return nil
	}
	now, err := t.cfg.Clock(ctx)
	if err != nil {
		return err
	}
	var looks errgroup.Group
	looks.SetLimit(parallel)
	for i := range rows {
		looks.Go(func() error {
			if err := t.look(ctx, rows[i], now); err != nil {
				t.warn(ctx, "trim a channel", err)
				t.fail(rows[i].ChannelID)
			}
			return nil
		})
	}
	return looks.Wait()
}

// passOver looks at all channels of this node's shards, at the start and whenever requestPass
// demands it: the policy may have changed, or a node may have died before it looked at a channel.
// Every passEvery it looks at those that are not due at any time.
func (t *Trimmer) passOver(ctx context.Context) {
	regular := false
	for {
		for t.pass(ctx, regular) != nil {
			if lifecycle.Pause(ctx, retryAfter) != nil {
				return
			}
		}
		next := time.NewTimer(passEvery)
		select {
		case <-t.passes:
			regular = false
		case <-next.C:
			regular = true
		case <-ctx.Done():
		}
		next.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// pass looks at all channels of this node's shards; if regular is set, except those with a Due.
func (t *Trimmer) pass(ctx context.Context, regular bool) error {
	for after := ""; ; {
		rows, err := t.cfg.Rows.RowsAfter(ctx, after, passPage)
		if err != nil {
			t.warn(ctx, "list the channels", err)
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		after = rows[len(rows)-1].ChannelID
		rows = slices.DeleteFunc(rows, func(row channel.Row) bool {
			return !t.owns(row.ChannelID) || t.policy(&row).Unlimited() && row.Oldest == 0 || regular && !row.Trim.Due.IsZero()
		})
		if err := t.lookAt(ctx, rows); err != nil {
			t.warn(ctx, "look at all channels", err)
			return err
		}
		if err := lifecycle.Pause(ctx, passPause); err != nil {
			return err
		}
	}
}

// watchOwner requests a pass whenever this node may own another shard.
func (t *Trimmer) watchOwner(ctx context.Context) {
	if t.cfg.Owner == nil {
		return
	}
	owned := t.owned()
	for {
		changed := t.cfg.Owner.Changed()
		for shard, owns := range t.owned() {
			if owns && !owned[shard] {
				t.requestPass()
			}
		}
		owned = t.owned()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (t *Trimmer) owned() []bool {
	owned := make([]bool, t.cfg.Shards)
	for shard := range owned {
		owned[shard] = t.cfg.Owner.Owns(shard)
	}
	return owned
}
