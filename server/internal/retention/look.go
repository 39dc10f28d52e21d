package retention

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// stepSize is the number of entries that are stripped or deleted at a time, the maximum of
	// message.LogTrimmer. maxSteps is the maximum number of steps in one look at a channel.
	stepSize, maxSteps = 1000, 20
	// minSlack is by how many messages a log may exceed its policy at least before it is trimmed.
	minSlack = 100
	// saveTimeout bounds the write of what a look has done.
	saveTimeout = 5 * time.Second
	// maxAgeSlack bounds how much later than necessary messages expire because of their age.
	maxAgeSlack = time.Minute
)

// look is one look at a channel.
type look struct {
	*Trimmer
	row    channel.Row
	policy channel.Retention
	now    time.Time
	// first is the log's first readable entry, which is read only if the policy requires it.
	first message.Entry
	// due is when the channel must be looked at again; zero if that depends on new entries only.
	due time.Time
	// done is how far the log has been trimmed.
	done channel.Trim
	// steps counts the steps.
	steps int
}

// look looks at a channel: it moves its boundary, strips and deletes what is old enough, and stores
// how far it has come and when the channel is due again, also after an error. The log ends at
// row.Head or later, so that what is before that is published and is not the log's last entry.
func (t *Trimmer) look(ctx context.Context, row channel.Row, now time.Time) error {
	l := &look{Trimmer: t, row: row, policy: t.policy(&row), now: now, done: row.Trim}
	err := l.trim(ctx)
	if err != nil {
		l.due = now.Add(retryAfter)
	}
	if err = errors.Join(err, l.save(ctx)); err != nil {
		return fmt.Errorf("trim %s: %w", row.ChannelID, err)
	}
	t.enough.Set(row.ChannelID, l.nextCount())
	return nil
}

func (l *look) trim(ctx context.Context) error {
	if l.row.State == channel.Deleting {
		return l.finishDelete(ctx)
	}
	unchanged, err := l.expire(ctx)
	if err != nil {
		return err
	}
	if !unchanged {
		l.dueAt(l.now)
		return nil
	}
	oldest, wait := l.removable(&l.row, l.done.Stripped)
	if l.done.Stripped, err = l.strip(ctx, l.done.Stripped, oldest); err != nil {
		return err
	}
	if wait == 0 {
		_, wait = l.removable(&l.row, l.done.Stripped) // of what has expired meanwhile
	}
	if wait > 0 {
		l.dueAt(l.now.Add(wait))
	}
	l.done.Deleted, err = l.remove(ctx, l.done.Deleted, l.done.Stripped)
	return err
}

// save stores how far the look has come, even if ctx has ended: what was deleted must not be looked
// for again.
func (l *look) save(ctx context.Context) error {
	l.done.Due = time.Time{}
	if !l.due.IsZero() {
		l.done.Due = l.due.UTC().Truncate(time.Millisecond)
	}
	if l.done == l.row.Trim {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return l.cfg.Rows.SetTrim(ctx, &l.row, l.done)
}

// dueAt makes the channel due at the given time, or earlier.
func (l *look) dueAt(at time.Time) {
	if l.due.IsZero() || at.Before(l.due) {
		l.due = at
	}
}

// nextCount returns the count of messages from which on the log must be looked at.
func (l *look) nextCount() int64 {
	switch {
	case l.policy.Unlimited():
		return math.MaxInt64
	case l.policy.MaxBytes > 0:
		return 0 // edits count as well
	case l.policy.MaxAge > 0 && l.row.First() > l.row.Head:
		return l.row.Count + 1
	case l.policy.MaxMessages > 0:
		return l.row.Expired + l.policy.MaxMessages + slack(l.policy.MaxMessages) + 1
	default:
		return math.MaxInt64 // its time is due
	}
}

// slack returns by how much a limit may be exceeded.
func slack(limit int64) int64 { return max(limit/10, minSlack) }

// expire moves the boundary if the log exceeds its policy. It returns false if the channel's
// settings or boundary have changed since the row was read.
func (l *look) expire(ctx context.Context) (unchanged bool, err error) {
	if l.policy.Unlimited() || l.row.First() > l.row.Head {
		return true, nil
	}
	if l.policy.MaxAge > 0 || l.policy.MaxBytes > 0 {
		if l.first, err = l.entry(ctx, l.row.First()); err != nil {
			return false, err
		}
	}
	var last message.Entry
	if l.policy.MaxBytes > 0 {
		if last, err = l.entry(ctx, l.row.Head); err != nil {
			return false, err
		}
	}
	if l.exceeds(&last) {
		to, err := l.newBoundary(ctx, &last)
		if err != nil {
			return false, err
		}
		if to.Oldest > l.row.First() {
			moved, err := l.cfg.Rows.MoveBoundary(ctx, l.row.ChannelID, l.row.SettingsRev, to, l.now.UTC().Truncate(time.Millisecond))
			if err != nil || !moved {
				return false, err
			}
			l.Trimmer.expired.Add(ctx, to.Expired-l.row.Expired)
			l.row.Boundary = to
			l.row.Trim.Due = l.now.UTC().Truncate(time.Millisecond)
		}
	}
	if l.policy.MaxAge > 0 && l.row.First() <= l.row.Head {
		if l.first.Seq != l.row.First() {
			if l.first, err = l.entry(ctx, l.row.First()); err != nil {
				return false, err
			}
		}
		l.dueAt(l.first.MsgTime.Add(l.policy.MaxAge + min(l.policy.MaxAge/100, maxAgeSlack)))
	}
	return true, nil
}

// exceeds reports whether the log exceeds a limit of its policy by more than the slack. last is the
// entry at row.Head if the policy limits bytes.
func (l *look) exceeds(last *message.Entry) bool {
	p := &l.policy
	return p.MaxAge > 0 && !l.first.MsgTime.After(l.now.Add(-p.MaxAge)) ||
		p.MaxMessages > 0 && l.row.Count-l.row.Expired > p.MaxMessages+slack(p.MaxMessages) ||
		p.MaxBytes > 0 && last.Bytes-l.first.Bytes > p.MaxBytes+p.MaxBytes/10
}

// newBoundary returns the boundary according to the policy, without any slack: it is at the first
// message that does not exceed it, or after row.Head.
func (l *look) newBoundary(ctx context.Context, last *message.Entry) (message.Boundary, error) {
	p := &l.policy
	var found message.Entry
	_, err := l.lastWith(ctx, l.row.First(), l.row.Head, func(e *message.Entry) bool {
		has := p.MaxAge > 0 && !e.MsgTime.After(l.now.Add(-p.MaxAge)) ||
			p.MaxMessages > 0 && e.Count <= l.row.Count-p.MaxMessages ||
			p.MaxBytes > 0 && last.Bytes-e.Bytes >= p.MaxBytes
		if has && e.Seq > found.Seq {
			found = *e
		}
		return has
	})
	if err != nil || found.Seq == 0 {
		return message.Boundary{}, err
	}
	// The edits and recalls that follow it change expired messages.
	next, err := l.cfg.Log.Entries(ctx, l.row.ChannelID, message.Range{
		After: found.Seq, Before: l.row.Head + 1, Limit: 1, MessagesOnly: true, HeadersOnly: true,
	})
	if err != nil {
		return message.Boundary{}, err
	}
	to := message.Boundary{Oldest: l.row.Head + 1, Expired: found.Count}
	if len(next) > 0 {
		to.Oldest = next[0].Seq
	}
	return to, nil
}

// lastWith returns the seq of the last entry in `from` through `to` for which has returns true, or
// from-1. If has returns true for an entry, it must do so for all before it. It reads a number of
// entries that is logarithmic in the number of those for which has returns true.
func (l *look) lastWith(ctx context.Context, from, to int64, has func(*message.Entry) bool) (int64, error) {
	test := func(seq int64) (bool, error) {
		e, err := l.entry(ctx, seq)
		if err != nil {
			return false, err
		}
		return has(&e), nil
	}
	lacks := to + 1 // the first seq known not to have it
	for step := int64(1); from < lacks; step *= 2 {
		seq := min(from+step-1, lacks-1)
		ok, err := test(seq)
		if err != nil {
			return 0, err
		}
		if !ok {
			lacks = seq
			break
		}
		from = seq + 1
	}
	for from < lacks {
		middle := from + (lacks-from)/2
		ok, err := test(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			from = middle + 1
		} else {
			lacks = middle
		}
	}
	return from - 1, nil
}

// entry reads an entry without its content. One that is missing although the boundary has not
// passed it is an error. For one that was deleted it returns only its seq.
func (l *look) entry(ctx context.Context, seq int64) (message.Entry, error) {
	entries, err := l.cfg.Log.Entries(ctx, l.row.ChannelID, message.Range{After: seq - 1, Before: seq + 1, Limit: 1, HeadersOnly: true})
	switch {
	case err != nil:
		return message.Entry{}, err
	case len(entries) > 0:
		return entries[0], nil
	case seq >= l.row.First():
		return message.Entry{}, fmt.Errorf("entry %d is missing", seq)
	}
	return message.Entry{Message: message.Message{Seq: seq}}, nil
}

// strip strips the entries after the seq done and before oldest, and returns up to where.
func (l *look) strip(ctx context.Context, done, oldest int64) (int64, error) {
	if done+1 >= oldest {
		return done, nil
	}
	l.dropCached(ctx, oldest)
	return l.inSteps(ctx, done, oldest-1, func(after, before int64) error {
		l.stripped.Add(ctx, before-after-1)
		return l.cfg.Log.Strip(ctx, l.row.ChannelID, after, before)
	})
}

// dropCached deletes the cached messages of a log if some are before oldest. A builder that loaded
// them before the boundary was moved has written them by now. If that fails, no reader returns
// them, and they leave the cache with its next messages or with its expiry.
func (l *look) dropCached(ctx context.Context, oldest int64) {
	page, err := l.cfg.Cache.Page(ctx, l.row.ChannelID, message.Range{Before: oldest, Limit: 1, MessagesOnly: true})
	if err == nil && len(page.Events) > 0 {
		err = l.cfg.Cache.Drop(ctx, l.row.ChannelID)
	}
	if err != nil {
		l.warn(ctx, "remove expired messages from the cache", err)
	}
}

// remove deletes the stripped entries after the seq done that are older than the idempotency
// window, and returns up to where. It keeps the log's last entry.
func (l *look) remove(ctx context.Context, done, stripped int64) (int64, error) {
	end := min(stripped, l.row.Head-1)
	if done >= end {
		return done, nil
	}
	old := l.now.Add(-l.cfg.IdempotencyWindow)
	last, err := l.lastWith(ctx, done+1, end, func(e *message.Entry) bool { return !e.MsgTime.After(old) }) // true if it was deleted
	if err != nil {
		return done, err
	}
	if done, err = l.inSteps(ctx, done, last, func(after, before int64) error {
		l.deleted.Add(ctx, before-after-1)
		return l.cfg.Log.Delete(ctx, l.row.ChannelID, after, before)
	}); err != nil || done >= end {
		return done, err
	}
	next, err := l.entry(ctx, done+1)
	if err != nil {
		return done, err
	}
	// In large steps: what was stripped together is deleted together.
	l.dueAt(next.MsgTime.Add(l.cfg.IdempotencyWindow + min(l.cfg.IdempotencyWindow/100, time.Hour)))
	return done, nil
}

// inSteps calls do for the entries after done through last, stepSize at a time, and pauses in
// between. It returns the last seq for which it did. Beyond maxSteps the channel is looked at again
// soon.
func (l *look) inSteps(ctx context.Context, done, last int64, do func(after, before int64) error) (int64, error) {
	for done < last {
		if l.steps == maxSteps {
			l.dueAt(l.now)
			l.touch(l.row.ChannelID)
			return done, nil
		}
		l.steps++
		began := time.Now()
		before := min(done+stepSize, last) + 1
		if err := do(done, before); err != nil {
			return done, err
		}
		done = before - 1
		if done < last {
			if err := lifecycle.Pause(ctx, 2*time.Since(began)); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}
