package message

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Replay returns the events that cover the entries from after+1 to atLeast, without gaps, each with
// its message in its current state. An edit that a later change of its message replaced has no
// event of its own: the next event covers it, or one that is only Passed if there is no next. So a
// message that was edited a thousand times costs as much as one that was edited once.
//
// The result ends earlier after limit events or before contents exceed maxBytes, but has at least
// one event if after is below atLeast; a maxBytes of 0 means no limit. If the entry after+1 has
// expired, the result is empty: State has the boundary.
//
// Replay reads the cache if that reaches atLeast and the end of the log, at most
// ReaderConfig.MaxAge old: a cache that is behind may have the text of a recalled message. Else it
// reads the store. If patient is set, it first waits up to ReaderConfig.CacheLagTimeout for a cache
// that is only behind.
func (r *Reader) Replay(
	ctx context.Context, channelID string, after, atLeast int64, limit, maxBytes int, patient bool,
) ([]Event, error) {
	if after >= atLeast {
		return nil, nil
	}
	began := time.Now()
	known, err := r.heads.lookup(ctx, channelID, r.cfg.MaxAge)
	if err != nil {
		return nil, Unavailable(err)
	}
	head := known.head
	if after+1 < head.First() {
		return nil, nil
	}
	rp := replay{
		reader: r, channelID: channelID, after: after, goal: atLeast, limit: limit, maxBytes: maxBytes, first: head.First(),
	}
	read := r.cachedEvents
	if patient {
		read = r.eventsOrWait
	}
	rg := Range{After: after, Before: atLeast + 1, Limit: limit, MaxBytes: maxBytes}
	cached, err := read(ctx, channelID, rg, max(atLeast, head.Seq))
	switch {
	case errors.Is(err, errNotCached):
		err = r.untilReached(ctx, channelID, atLeast, rp.readStore)
	case err == nil:
		rp.useCached(&cached)
	}
	if err == nil && time.Since(began) > readWithin {
		err = errTooSlow
	}
	if err != nil {
		return nil, err
	}
	return rp.events(), nil
}

// replay is one call of Replay. It collects the sends of the range, and the messages whose newest
// change is in the range. Both are cut by the limits: a cut list ends at its last entry.
type replay struct {
	reader          *Reader
	channelID       string
	after, goal     int64
	limit, maxBytes int
	// first is the seq of the log's first readable entry.
	first int64

	sends, changed []Entry
	// through is the last seq that both lists cover.
	through int64
}

// readStore reads the range from the store.
func (p *replay) readStore(ctx context.Context) error {
	log := p.reader.log
	pending, err := log.Pending(ctx, p.channelID)
	if err != nil {
		return err
	}
	rg := Range{After: p.after, Before: p.goal + 1, Limit: p.limit, MaxBytes: p.maxBytes, MessagesOnly: true}
	if p.sends, err = log.Entries(ctx, p.channelID, rg); err != nil {
		return err
	}
	if p.changed, err = log.Changed(ctx, p.channelID, p.after, p.goal+1, p.limit, p.maxBytes); err != nil {
		return err
	}
	p.through = p.goal
	if n := len(p.sends); rg.cut(p.sends) {
		p.through = p.sends[n-1].Seq
	}
	if n := len(p.changed); rg.cut(p.changed) {
		p.through = min(p.through, p.changed[n-1].ChangedSeq)
	}
	p.changed = slices.DeleteFunc(p.changed, func(e Entry) bool { return e.Seq < p.first })
	return p.fold(ctx, pending)
}

// fold applies changes that the store has not applied. Their messages move to the newest change of
// each, and out of the range if that is beyond the goal.
func (p *replay) fold(ctx context.Context, pending []Entry) error {
	newest := make(map[int64]*Entry, len(pending))
	for i := range pending {
		newest[pending[i].TargetSeq] = &pending[i] // ascending by seq
	}
	if len(newest) == 0 {
		return nil
	}
	for i := range p.sends {
		if change := newest[p.sends[i].Seq]; change != nil {
			p.sends[i].apply(change)
		}
	}
	for i := range p.changed {
		if change := newest[p.changed[i].Seq]; change != nil {
			p.changed[i].apply(change)
			delete(newest, p.changed[i].Seq)
		}
	}
	var missing []Place
	for target, change := range newest {
		if change.Seq > p.after && change.Seq <= p.goal && target >= p.first {
			missing = append(missing, Place{p.channelID, target})
		}
	}
	if len(missing) > 0 {
		targets, err := p.reader.log.Messages(ctx, missing)
		if err != nil {
			return err
		}
		if len(targets) < len(missing) {
			return errStoreBehind
		}
		for i := range targets {
			targets[i].apply(newest[targets[i].Seq])
		}
		p.changed = append(p.changed, targets...)
	}
	slices.SortFunc(p.changed, func(a, b Entry) int { return cmp.Compare(a.ChangedSeq, b.ChangedSeq) })
	return nil
}

// useCached takes over the events of the cache.
func (p *replay) useCached(page *CachedPage) {
	p.through = p.goal
	if page.Cut {
		p.through = page.Events[len(page.Events)-1].Seq
	}
	for i := range page.Events {
		e := Entry{Message: page.Events[i].Message}
		if e.Seq < p.first {
			continue
		}
		if page.Events[i].Kind == KindSend {
			p.sends = append(p.sends, e)
		} else {
			p.changed = append(p.changed, e)
		}
	}
}

// events merges both lists by the place of their events in the log.
func (p *replay) events() []Event {
	events := make([]Event, 0, len(p.sends)+len(p.changed)+1)
	at, bytes := p.after, 0
	add := func(kind Kind, seq int64, m *Entry) bool {
		if seq > p.through {
			return true // covered by a later call
		}
		if bytes += m.Size(); len(events) > 0 && (len(events) == p.limit || p.maxBytes > 0 && bytes > p.maxBytes) {
			return false
		}
		e := Event{Kind: kind, Epoch: p.reader.epoch, FromSeq: at + 1, Seq: seq, Rev: m.Rev, Message: m.Message}
		if kind == KindSend {
			e.Count, e.Time, e.Traceparent = m.Count, m.MsgTime, m.Traceparent
		}
		events = append(events, e)
		at = seq
		return true
	}
	full := false
	for sends, changed := p.sends, p.changed; !full && (len(sends) > 0 || len(changed) > 0); {
		if len(changed) == 0 || len(sends) > 0 && sends[0].Seq < changed[0].ChangedSeq {
			full = !add(KindSend, sends[0].Seq, &sends[0])
			sends = sends[1:]
			continue
		}
		full = !add(changed[0].LastChange(), changed[0].ChangedSeq, &changed[0])
		changed = changed[1:]
	}
	if !full && at < p.through {
		events = append(events, Event{
			Kind: KindExpired, Passed: true, Epoch: p.reader.epoch, FromSeq: at + 1, Seq: p.through, Message: Message{ChannelID: p.channelID},
		})
	}
	return events
}
