package keeper

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// sweepAtLeast is how many messages a sweep must find at least: it reads payload.
	sweepAtLeast = 256
	// maxSweepPages bounds the pages of one sweep of a partition. The next round goes on: what was
	// swept is not read again.
	maxSweepPages = 1000
	// maxOpenBytes bounds what a sweep keeps of the sets of open entries.
	maxOpenBytes = 8 << 20
	// sweepRest is how much longer than a page takes the sweep rests after it.
	sweepRest = 4
)

// sweepPartition removes messages that every group has settled, and that Trim does not remove
// because an older one is open. A group that is the only one has its holder remove them; with
// several groups no holder knows what the others settled.
//
// An entry is settled if each group has it up to its mark Sent, and not in its set of open entries.
// The marks are read before the sets: an entry up to Sent never becomes open again unless the group
// is moved, and then Sweep fails with ErrStale.
func (k *Keeper) sweepPartition(ctx context.Context, t *qlog.Topic, partition int) error {
	ref := t.Ref(partition)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	marks, err := k.cfg.Store.Marks(call, ref)
	if err != nil {
		if errors.Is(err, qlog.ErrNoTopic) {
			err = nil // see trimTopic
		}
		return err
	}
	from, to, worth := pinned(marks)
	if !worth {
		return nil
	}
	open, err := k.openSets(call, ref, marks)
	if err != nil || open == nil {
		return err
	}
	s := &sweep{k: k, ref: ref, version: marks.Version, open: open, to: to, before: math.MaxInt64}
	if t.RetainAge > 0 {
		s.before = qlog.ID(time.Now().Add(-t.RetainAge).UnixMicro())
	}
	return s.run(ctx, from.ID)
}

// pinned returns the part of the log that may have settled entries behind open ones, and whether
// there are enough of them to be worth a sweep.
func pinned(m qlog.Marks) (from qlog.Pos, to int64, worth bool) {
	if len(m.Groups) < 2 {
		return from, 0, false
	}
	from, to = m.Groups[0].Cursor, m.Groups[0].Sent.Ord
	open := int64(0)
	for _, g := range m.Groups {
		if g.Cursor.ID < from.ID {
			from = g.Cursor
		}
		to = min(to, g.Sent.Ord)
		open += g.Open
	}
	// What the log has between the two. Retention may keep more before them, so that this is too
	// much.
	between := min(m.Length-(m.Ord-to), to-from.Ord)
	return from, to, between-open >= sweepAtLeast
}

// openSet has the entries that some group has open, by chunk. The chunks of each group are parsed
// when the sweep reaches them.
type openSet struct {
	groups []map[int64]string
	// chunk is the one that ordinals are of; broken says that it could not be parsed.
	chunk    int64
	ordinals map[int64]bool
	broken   bool
}

// openSets reads the sets of open entries of all groups. It returns nil if they are too large.
func (k *Keeper) openSets(ctx context.Context, ref qlog.Ref, m qlog.Marks) (*openSet, error) {
	set := &openSet{chunk: -1}
	bytes := 0
	for _, g := range m.Groups {
		chunks := map[int64]string{}
		for cursor := uint64(0); ; {
			page, next, err := k.cfg.Store.Open(ctx, qlog.GroupRef{Ref: ref, Group: g.Group}, cursor)
			if err != nil {
				return nil, err
			}
			for chunk, ranges := range page {
				// A page may come twice. The later one may have fewer entries, but not the ones
				// that are open.
				bytes += len(ranges) + 16
				chunks[chunk] = ranges
			}
			if cursor = next; cursor == 0 {
				break
			}
			if bytes > maxOpenBytes {
				return nil, nil //nolint:nilnil // see the contract
			}
		}
		set.groups = append(set.groups, chunks)
	}
	return set, nil
}

// contains reports whether some group may have an entry open.
func (s *openSet) contains(ord int64) bool {
	if chunk := ord / qlog.ChunkOrdinals; chunk != s.chunk {
		s.chunk, s.ordinals, s.broken = chunk, map[int64]bool{}, false
		for _, g := range s.groups {
			ordinals, err := qlog.ParseRanges(chunk, g[chunk])
			s.broken = s.broken || err != nil
			for _, o := range ordinals {
				s.ordinals[o] = true
			}
		}
	}
	return s.broken || s.ordinals[ord]
}

// sweep is one sweep of a partition.
type sweep struct {
	k       *Keeper
	ref     qlog.Ref
	version int64
	open    *openSet
	// to is the last ordinal that is swept, and before the first ID that is not.
	to     int64
	before qlog.ID
}

// run removes the settled entries after an ID. It rests between pages, because it reads payload.
func (s *sweep) run(ctx context.Context, after qlog.ID) error {
	for range maxSweepPages {
		began := time.Now()
		last, err := s.page(ctx, after)
		if errors.Is(err, qlog.ErrStale) || errors.Is(err, qlog.ErrNoTopic) {
			return nil // the next round looks anew
		}
		if err != nil || last == 0 {
			return err
		}
		after = last
		if err := lifecycle.Pause(ctx, sweepRest*time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// page sweeps one page. It returns the ID of its last entry, or 0 if nothing follows that is swept.
func (s *sweep) page(ctx context.Context, after qlog.ID) (last qlog.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries, err := s.k.cfg.Store.Read(ctx, s.ref, after, qlog.MaxReadEntries)
	if err != nil {
		return 0, err
	}
	end := slices.IndexFunc(entries, func(e qlog.Entry) bool { return e.Ord > s.to || e.ID >= s.before })
	if end >= 0 {
		entries = entries[:end]
	}
	var gone []qlog.Pos
	for i := range entries {
		if !s.open.contains(entries[i].Ord) {
			gone = append(gone, entries[i].Pos)
		}
	}
	if len(gone) > 0 {
		if _, err = s.k.cfg.Store.Sweep(ctx, s.ref, s.version, gone); err != nil {
			return 0, err
		}
	}
	if end >= 0 || len(entries) == 0 {
		return 0, nil
	}
	return entries[len(entries)-1].ID, nil
}
