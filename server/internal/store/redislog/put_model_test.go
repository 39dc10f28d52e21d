package redislog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// modelMessage is a message of the model.
type modelMessage struct {
	id, record string
	due        int64 // ms; 0 if it was not scheduled
	logID      qlog.ID
}

// modelPut is a request that was put, so that it can be repeated.
type modelPut struct {
	put qlog.Put
	// ids are those of the messages that its sequence covers; empty for what was not stored.
	ids map[int]string
}

// putModel says what a partition must do, with one group, whose marks the test moves.
type putModel struct {
	log, scheduled []modelMessage
	settled        int               // how many of log the group has settled
	keys           map[string]string // idempotency key -> "<digest> <message id>"
	unique         map[string]string // unique key -> message id
	slots          map[int64]modelPut
	last           int64 // the latest sequence
	bodies         int
	max            int64
}

func (m *putModel) find(list []modelMessage, id string) int {
	return slices.IndexFunc(list, func(x modelMessage) bool { return x.id == id })
}

// want is what the model expects of one message: an error, a duplicate's ID, or a new message.
type want struct {
	err      error
	dup      string
	fresh    bool
	replaces string // the ID of a message in the log
}

// judge decides what becomes of a message. slot is the earlier request with its sequence, or nil.
func (m *putModel) judge(i int, d *qlog.Draft, slot *modelPut, free int64, refused bool) want {
	if d.IdempotencyKey != "" {
		if known, ok := m.keys[d.IdempotencyKey]; ok {
			digest, id, _ := strings.Cut(known, "|")
			if digest != d.Digest {
				return want{err: qlog.ErrKeyReused}
			}
			return want{dup: id}
		}
	} else if slot != nil && slot.ids[i] != "" {
		return want{dup: slot.ids[i]}
	}
	if refused {
		return want{err: qlog.ErrFull}
	}
	w := want{fresh: true}
	if holder := m.unique[d.UniqueKey]; d.UniqueKey != "" && holder != "" {
		inLog, waits := m.find(m.log, holder) >= 0, m.find(m.scheduled, holder)
		switch {
		case !inLog && waits < 0:
		case d.OnConflict == qlog.ConflictKeep:
			return want{dup: holder}
		case d.OnConflict == qlog.ConflictReject:
			return want{err: qlog.ErrUnique}
		case inLog:
			w.replaces = holder
		default:
			m.scheduled = slices.Delete(m.scheduled, waits, waits+1)
			free++
		}
	}
	if free <= 0 {
		return want{err: qlog.ErrFull}
	}
	return w
}

// room is how many messages more there may be, counting what the log holds.
func (m *putModel) room() int64 { return m.max - int64(len(m.log)+len(m.scheduled)) }

// trim removes what the group has settled.
func (m *putModel) trim() { m.log, m.settled = slices.Delete(m.log, 0, m.settled), 0 }

// refusesWhole reports whether a request with a sequence finds no room.
func (m *putModel) refusesWhole(put *qlog.Put) bool {
	if put.ProducerID == "" {
		return false
	}
	need := int64(0)
	for i := range put.Drafts {
		if _, known := m.keys[put.Drafts[i].IdempotencyKey]; !known || put.Drafts[i].IdempotencyKey == "" {
			need++
		}
	}
	return m.room() < int64(len(put.Drafts)) && need > m.room()
}

// apply checks a result and does to the model what it says. It returns an ID that was not known.
func (m *putModel) apply(t *rapid.T, d *qlog.Draft, w want, got qlog.PutResult) {
	switch {
	case w.err != nil:
		if !errors.Is(got.Err, w.err) {
			t.Fatalf("got %+v, want the error %v", got, w.err)
		}
		return
	case w.dup != "":
		if got.Err != nil || !got.Duplicate || got.MessageID != w.dup {
			t.Fatalf("got %+v, want a duplicate of %s", got, w.dup)
		}
		return
	case got.Err != nil || got.Duplicate || got.MessageID == "":
		t.Fatalf("got %+v, want a new message", got)
	default:
	}
	var replaced qlog.ID
	if w.replaces != "" {
		replaced = m.log[m.find(m.log, w.replaces)].logID
	}
	if got.Replaced != replaced {
		t.Fatalf("got %+v, want %d replaced", got, replaced)
	}
	_, id, isScheduled, ok := qlog.ParseMessageID(got.MessageID)
	if !ok || isScheduled != (!d.At.IsZero() || d.Delay > 0) || isScheduled != !got.Due.IsZero() {
		t.Fatalf("got %+v of %+v", got, d)
	}
	record, err := encodeRecord(d)
	if err != nil {
		t.Fatal(err)
	}
	msg := modelMessage{id: got.MessageID, record: string(record)}
	if isScheduled {
		msg.due = got.Due.UnixMilli()
		m.scheduled = append(m.scheduled, msg)
	} else {
		msg.logID = id
		m.log = append(m.log, msg)
	}
	if d.IdempotencyKey != "" {
		m.keys[d.IdempotencyKey] = d.Digest + "|" + got.MessageID
	}
	if d.UniqueKey != "" {
		m.unique[d.UniqueKey] = got.MessageID
	}
}

// put checks the results of a request. What is refused because the partition is full is judged once
// more after the settled messages were removed.
func (m *putModel) put(t *rapid.T, put qlog.Put, results []qlog.PutResult) {
	var slot *modelPut
	if put.ProducerID != "" {
		if old, ok := m.slots[put.Sequence]; ok {
			slot = &old
		}
	}
	todo := make([]int, len(put.Drafts))
	for i := range todo {
		todo[i] = i
	}
	covered := map[int]string{}
	for pass := range 2 {
		refused := slot == nil && m.refusesWhole(&put)
		var full []int
		for _, i := range todo {
			d := &put.Drafts[i]
			w := m.judge(i, d, slot, m.room(), refused)
			if errors.Is(w.err, qlog.ErrFull) && pass == 0 {
				full = append(full, i)
				continue
			}
			m.apply(t, d, w, results[i])
			if w.fresh && d.IdempotencyKey == "" {
				covered[i] = results[i].MessageID
			}
		}
		if len(full) == 0 || pass == 1 {
			break
		}
		m.trim()
		todo = full
		if put.ProducerID != "" && slot == nil {
			var all []int
			for i := range put.Drafts {
				all = append(all, i)
			}
			todo = all
			// The whole request again: what was a duplicate is one still.
		}
	}
	if put.ProducerID != "" && slot == nil && len(covered) > 0 {
		m.slots[put.Sequence] = modelPut{put, covered}
	}
}

// check compares the log and the scheduled messages with the model.
func (m *putModel) check(t *rapid.T, r *inputRig) {
	all := r.entries()
	if len(all) != len(m.log) {
		t.Fatalf("%d entries, want %d", len(all), len(m.log))
	}
	for i, e := range all {
		if e.pos.ID != m.log[i].logID || e.fields["d"] != m.log[i].record {
			t.Fatalf("entry %d is %s %v, want %+v", i, e.pos, e.fields["d"], m.log[i])
		}
		if i > 0 && e.pos.Ord != all[i-1].pos.Ord+1 {
			t.Fatalf("%s follows %s", e.pos, all[i-1].pos)
		}
	}
	data := r.c.HGetAll(r.tb.Context(), r.s.keys.delayedData(r.ref)).Val()
	scores := r.c.ZRangeWithScores(r.tb.Context(), r.s.keys.delayed(r.ref), 0, -1).Val()
	if len(data) != len(m.scheduled) || len(scores) != len(m.scheduled) {
		t.Fatalf("%d and %d scheduled, want %d", len(data), len(scores), len(m.scheduled))
	}
	for _, z := range scores {
		at := m.find(m.scheduled, fmt.Sprint(z.Member))
		if at < 0 || m.scheduled[at].due != int64(z.Score) || data[m.scheduled[at].id] != m.scheduled[at].record {
			t.Fatalf("%v is scheduled at %f", z.Member, z.Score)
		}
	}
}

// draw makes a request: a new one, or the repeat of one with a sequence.
func (m *putModel) draw(t *rapid.T) qlog.Put {
	if len(m.slots) > 0 && rapid.Bool().Draw(t, "repeat") {
		var sequences []int64
		for s := range m.slots {
			sequences = append(sequences, s)
		}
		slices.Sort(sequences)
		return m.slots[rapid.SampledFrom(sequences).Draw(t, "sequence")].put
	}
	var put qlog.Put
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		m.bodies++
		d := draft(fmt.Sprint("m", m.bodies))
		switch rapid.IntRange(0, 3).Draw(t, "when") {
		case 0:
			d.At = time.Now().Add(-time.Minute)
		case 1:
			d.Delay = time.Hour
		default:
		}
		if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
			d.IdempotencyKey = rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "key")
			d.Digest = rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "digest")
		}
		if rapid.IntRange(0, 3).Draw(t, "unique") == 0 {
			d.UniqueKey = rapid.SampledFrom([]string{"u", "v"}).Draw(t, "unique key")
			d.OnConflict = rapid.SampledFrom([]qlog.Conflict{qlog.ConflictReject, qlog.ConflictKeep, qlog.ConflictReplace}).Draw(t, "mode")
		}
		put.Drafts = append(put.Drafts, d)
	}
	if rapid.Bool().Draw(t, "with a sequence") {
		m.last++
		put.ProducerID, put.Sequence = "p", m.last
	}
	return put
}

func TestInputModel(t *testing.T) {
	t.Parallel()
	base := newInputRig(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		r := inputRigOn(t, base.c, func(topic *qlog.Topic) { topic.MaxMessages = int64(rapid.IntRange(2, 12).Draw(rt, "max")) })
		m := &putModel{
			keys: map[string]string{}, unique: map[string]string{}, slots: map[int64]modelPut{}, max: r.bounds.MaxMessages,
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				put := m.draw(rt)
				results, err := r.s.Put(t.Context(), r.ref, r.bounds, put)
				if err != nil {
					rt.Fatal(err)
				}
				m.put(rt, put, results)
			},
			"due": func(rt *rapid.T) {
				m.moveDue(rt, r)
			},
			"cancel": func(rt *rapid.T) {
				if len(m.scheduled) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(m.scheduled)-1).Draw(rt, "which")
				got, err := r.s.Cancel(t.Context(), r.ref, []string{m.scheduled[i].id})
				if err != nil || got[0] != (qlog.Cancelled{}) {
					rt.Fatal(got, err)
				}
				m.scheduled = slices.Delete(m.scheduled, i, i+1)
			},
			"settle": func(rt *rapid.T) {
				if len(m.log) == m.settled {
					rt.Skip()
				}
				m.settled = rapid.IntRange(m.settled+1, len(m.log)).Draw(rt, "up to")
				r.settle("work", r.entries()[m.settled-1].pos)
			},
			"trim": func(rt *rapid.T) {
				n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000)
				if err != nil || n != m.settled {
					rt.Fatalf("%d trimmed, want %d: %v", n, m.settled, err)
				}
				m.trim()
			},
			"": func(rt *rapid.T) { m.check(rt, r) },
		})
	})
}

// moveDue moves what is due by Redis' clock, in order of due times and then of IDs.
func (m *putModel) moveDue(rt *rapid.T, r *inputRig) {
	var waiting, moving []modelMessage
	soon := time.Now().Add(time.Minute).UnixMilli()
	for _, x := range m.scheduled {
		if x.due < soon {
			moving = append(moving, x)
		} else {
			waiting = append(waiting, x)
		}
	}
	for _, x := range moving {
		r.eventually(func() bool { return r.c.Time(r.tb.Context()).Val().UnixMilli() >= x.due })
	}
	n, _, err := r.s.Due(r.tb.Context(), r.ref)
	if err != nil || n != len(moving) {
		rt.Fatalf("%d moved, want %d: %v", n, len(moving), err)
	}
	slices.SortFunc(moving, func(a, b modelMessage) int {
		if a.due != b.due {
			return int(a.due - b.due)
		}
		return strings.Compare(a.id, b.id)
	})
	for i, e := range r.entries()[len(m.log):] {
		if e.fields["i"] != moving[i].id {
			rt.Fatalf("entry %d is %v, want %s", i, e.fields["i"], moving[i].id)
		}
		moving[i].logID = e.pos.ID
	}
	m.log, m.scheduled = append(m.log, moving...), waiting
}
