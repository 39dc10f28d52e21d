package message

import (
	"context"
	"slices"
	"sync"
	"time"
)

// fakeStore is an in-memory store for scripted faults: its hooks can fail a call before or after it
// took effect. The real stores are tested by storetest, and together with the writer by the tests
// of the whole server.
type fakeStore struct {
	mu         sync.Mutex
	logs       map[string][]Entry
	boundaries map[string]Boundary

	// beforeInsert may fail an insert or change what it does. It runs without the lock.
	beforeInsert func(entries []Entry) error
	// afterInsert may turn the reply of a completed insert into an error, like a lost reply.
	afterInsert func(entries []Entry) error
	// beforeApply may fail an Apply. It runs without the lock.
	beforeApply func() error
	// betweenReads runs between the reads of a lookup: before whichever of ByClientKeys and Targets is
	// the second. It runs without the lock.
	betweenReads func()
	readOnce     bool
	// visible returns false for the entries to hide from reads; nil hides none.
	visible func(e *Entry) bool
	// applies holds the number of changes of each Apply, pendings that of the calls of Pending.
	applies  []int
	pendings int
}

func newFakeStore() *fakeStore { return &fakeStore{logs: make(map[string][]Entry)} }

func (f *fakeStore) Insert(_ context.Context, _ int, entries []Entry) (int, error) {
	if f.beforeInsert != nil {
		if err := f.beforeInsert(entries); err != nil {
			return 0, err
		}
	}
	n, err := f.insert(entries)
	if f.afterInsert != nil && err == nil {
		if err := f.afterInsert(entries); err != nil {
			return 0, err
		}
	}
	return n, err
}

// insert does the work of the unique indexes: it takes any free seq, as Mongo does.
func (f *fakeStore) insert(entries []Entry) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range entries {
		for _, o := range f.logs[e.ChannelID] {
			if o.Seq == e.Seq || o.FromID == e.FromID && o.ClientMsgID == e.ClientMsgID {
				return i, &ConflictError{ChannelID: e.ChannelID}
			}
		}
		e.Pending = e.Kind != KindSend
		f.logs[e.ChannelID] = append(f.logs[e.ChannelID], e)
	}
	return len(entries), nil
}

func (f *fakeStore) read(channelID string) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Entry
	for _, e := range f.logs[channelID] {
		if f.visible == nil || f.visible(&e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return int(a.Seq - b.Seq) })
	return out
}

func (f *fakeStore) Head(_ context.Context, channelID string) (Head, error) {
	log := f.read(channelID)
	if len(log) == 0 {
		return Head{}, nil
	}
	e := log[len(log)-1]
	f.mu.Lock()
	defer f.mu.Unlock()
	return Head{Seq: e.Seq, Count: e.Count, MsgTime: e.MsgTime, Bytes: e.Bytes, Rev: e.Rev, Boundary: f.boundaries[channelID]}, nil
}

// expire moves the boundary of a log to oldest. It strips the entries before strip, and deletes
// those before keep.
func (f *fakeStore) expire(channelID string, oldest, strip, keep int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to := Boundary{Oldest: oldest}
	log := f.logs[channelID]
	for i := range log {
		e := &log[i]
		if e.Seq < oldest {
			to.Expired = e.Count
		}
		if e.Seq < strip {
			*e = Entry{
				Kind: KindExpired, TargetSeq: e.TargetSeq, Bytes: e.Bytes,
				Message: Message{
					MsgID: e.MsgID, ChannelID: e.ChannelID, Seq: e.Seq, Count: e.Count, FromID: e.FromID, ClientMsgID: e.ClientMsgID,
					MsgTime: e.MsgTime, ChangedSeq: e.ChangedSeq, Rev: e.Rev,
				},
			}
		}
	}
	f.logs[channelID] = slices.DeleteFunc(log, func(e Entry) bool { return e.Seq < keep })
	if f.boundaries == nil {
		f.boundaries = make(map[string]Boundary)
	}
	f.boundaries[channelID] = to
}

// beginRead runs betweenReads, once, if this is the second read of a lookup.
func (f *fakeStore) beginRead() {
	f.mu.Lock()
	run := f.betweenReads
	switch {
	case run == nil:
	case f.readOnce:
		f.betweenReads = nil
	default:
		f.readOnce, run = true, nil
	}
	f.mu.Unlock()
	if run != nil {
		run()
	}
}

func (f *fakeStore) ByClientKeys(_ context.Context, channelID string, keys []ClientKey) (map[ClientKey]Entry, error) {
	f.beginRead()
	out := make(map[ClientKey]Entry)
	for _, e := range f.read(channelID) {
		if k := (ClientKey{e.FromID, e.ClientMsgID}); slices.Contains(keys, k) {
			out[k] = e
		}
	}
	return out, nil
}

func (f *fakeStore) Targets(_ context.Context, channelID string, msgIDs []string) (map[string]Entry, error) {
	f.beginRead()
	log := f.read(channelID)
	Fold(log, log)
	targets := make(map[string]Entry)
	for _, e := range log {
		if e.Kind == KindSend && slices.Contains(msgIDs, e.MsgID) {
			targets[e.MsgID] = e
		}
	}
	return targets, nil
}

func (f *fakeStore) Apply(_ context.Context, changes ...*Entry) error {
	if f.beforeApply != nil {
		if err := f.beforeApply(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies = append(f.applies, len(changes))
	for _, c := range changes {
		f.apply(c)
	}
	return nil
}

func (f *fakeStore) apply(change *Entry) {
	log := f.logs[change.ChannelID]
	for i := range log {
		switch e := &log[i]; {
		case e.Kind == KindSend && e.Seq == change.TargetSeq:
			e.apply(change)
			if change.Kind == KindRecall {
				e.Digest = nil
			}
		case e.Seq == change.Seq:
			e.Pending, e.Content = false, ""
		case e.Pending && e.TargetSeq == change.TargetSeq && e.Seq < change.Seq && change.Kind == KindRecall:
			e.Content = ""
		}
	}
}

func (f *fakeStore) Entries(_ context.Context, channelID string, r Range) ([]Entry, error) {
	log := f.read(channelID)
	if r.Desc {
		slices.Reverse(log)
	}
	var out []Entry
	size := 0
	for _, e := range log {
		if e.Seq <= r.After || r.Before > 0 && e.Seq >= r.Before || r.MessagesOnly && e.Kind != KindSend {
			continue
		}
		if len(out) == r.Limit || r.MaxBytes > 0 && size > r.MaxBytes {
			break
		}
		if r.HeadersOnly {
			e.Content, e.Metadata = "", nil
		}
		out = append(out, e)
		size += e.Size()
	}
	return out, nil
}

func (f *fakeStore) Heads(ctx context.Context, channelIDs []string) (map[string]Head, error) {
	heads := make(map[string]Head)
	for _, id := range channelIDs {
		heads[id], _ = f.Head(ctx, id)
	}
	return heads, nil
}

func (f *fakeStore) Messages(_ context.Context, places []Place) ([]Entry, error) {
	var out []Entry
	for _, id := range channelsOf(places) {
		for _, e := range f.read(id) {
			if e.Kind == KindSend && slices.Contains(places, Place{id, e.Seq}) {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

func (f *fakeStore) Pending(_ context.Context, channelIDs ...string) ([]Entry, error) {
	f.mu.Lock()
	f.pendings++
	f.mu.Unlock()
	var out []Entry
	for _, id := range channelIDs {
		for _, e := range f.read(id) {
			if e.Pending {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

func (f *fakeStore) Changed(_ context.Context, channelID string, after, before int64, limit, maxBytes int) ([]Entry, error) {
	var out []Entry
	for _, e := range f.read(channelID) {
		if e.Status > StatusSent && e.ChangedSeq > after && (before == 0 || e.ChangedSeq < before) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return int(a.ChangedSeq - b.ChangedSeq) })
	size := 0
	for i := range out {
		if size += out[i].Size(); i+1 == limit || maxBytes > 0 && size > maxBytes {
			return out[:i+1], nil
		}
	}
	return out, nil
}

func (f *fakeStore) Message(_ context.Context, channelID, msgID string) (Entry, bool, error) {
	for _, e := range f.read(channelID) {
		if e.Kind == KindSend && e.MsgID == msgID {
			return e, true, nil
		}
	}
	return Entry{}, false, nil
}

var (
	_ LogWriter = (*fakeStore)(nil)
	_ LogReader = (*fakeStore)(nil)
)

// clock is a clock that stands at the time that a test sets.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}
