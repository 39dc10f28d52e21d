package retention

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// memberStep is the number of members that are removed at a time.
const memberStep = 500

// eventSlack is added to Config.EventsMaxAge, for the difference between clocks.
const eventSlack = time.Hour

// finishDelete removes what a channel that is Deleting has left. Each step may be repeated:
//
//	the log has ended, also if the node that began the deletion could not end it
//	the members are removed
//	all entries are published, and ExpiryGrace has passed: entries are cleared and members removed
//	that writes from before have added
func (l *look) finishDelete(ctx context.Context) error {
	end, err := l.cfg.EndLog(ctx, &l.row)
	if err != nil || end == (channel.LogEnd{}) { // or it was created again
		return err
	}
	l.dueAt(l.now.Add(time.Second)) // until it is Deleted
	if all, err := l.dropMembers(ctx); err != nil || !all || l.row.Oldest < end.Oldest || !l.published(end) {
		return err
	}
	from := max(l.done.Stripped, l.done.Deleted)
	oldest, wait := l.removable(&l.row, from)
	if wait > 0 {
		l.due = l.now.Add(wait)
		return nil
	}
	if oldest > from+1 {
		l.dropCached(ctx, oldest)
		l.done.Stripped, err = l.inSteps(ctx, from, oldest-1, func(after, before int64) error {
			l.stripped.Add(ctx, before-after-1)
			return l.cfg.Log.Clear(ctx, l.row.ChannelID, after, before)
		})
		if err != nil || l.done.Stripped < oldest-1 {
			return err
		}
	}
	if l.done.Stripped+1 < l.row.Oldest {
		return nil
	}
	if all, err := l.dropMembers(ctx); err != nil || !all {
		return err
	}
	return l.cfg.Rows.FinishDelete(ctx, l.row.ChannelID)
}

// published reports whether the event stream has had all entries up to the end. An event that it
// lost never moves the row's numbers, but a time comes at which the stream has forgotten all events
// of before.
func (l *look) published(end channel.LogEnd) bool {
	return l.row.Head+1 >= l.row.Oldest || l.now.Sub(end.At) > l.cfg.EventsMaxAge+eventSlack
}

// dropMembers removes all members. If there are more than maxSteps allow, all is false, and the
// channel is looked at again soon.
func (l *look) dropMembers(ctx context.Context) (all bool, err error) {
	for ; l.steps < maxSteps; l.steps++ {
		began := time.Now()
		n, err := l.cfg.Rows.DropMembers(ctx, l.row.ChannelID, memberStep)
		if err != nil || n < memberStep {
			return err == nil, err
		}
		if err := lifecycle.Pause(ctx, time.Since(began)); err != nil {
			return false, err
		}
	}
	l.dueAt(l.now)
	l.touch(l.row.ChannelID)
	return false, nil
}
