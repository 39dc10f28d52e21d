package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/parleyhq/parley/server/internal/fault"
)

const (
	// maxLetterPage ends a page of dead letters with the one that takes it past so many bytes.
	maxLetterPage = 1 << 20
	// maxLetterRead is how many dead letters of one partition are read at once, and readAhead about how many of all.
	maxLetterRead, readAhead = 32, 256
	// maxLetterLooks is how many reads one page takes at most: what is of other groups is read past.
	maxLetterLooks = 4096
	// maxReplay is how many dead letters one step of the store gives back, maxPurge how many it removes.
	maxReplay, maxPurge = 100, 1000
	// DefaultReplay is how many dead letters Replay gives back if it is not told.
	DefaultReplay = 1000
	// MaxReplay is how many it gives back at most.
	MaxReplay = 10_000
)

// letterPlace is a place in the list of a topic's dead letters: newest first, and of one instant by partition. Everything up
// to and with it has been listed.
type letterPlace struct {
	partition int
	id        EntryID
}

func (l letterPlace) compare(o letterPlace) int {
	return cmp.Or(o.id.Compare(l.id), cmp.Compare(l.partition, o.partition))
}

// before gives the id before which the partition's letters have not been listed.
func (l letterPlace) before(partition int) EntryID {
	if partition <= l.partition {
		return l.id
	}
	if l.id.Seq == math.MaxUint64 {
		return EntryID{l.id.MS + 1, 0}
	}
	return EntryID{l.id.MS, l.id.Seq + 1}
}

func parseLetterPlace(s string) (letterPlace, error) {
	p, err := PartitionOf(s)
	if err != nil {
		return letterPlace{}, err
	}
	_, rest, _ := strings.Cut(s, "-")
	id, err := ParseEntryID(rest)
	if err != nil || id.IsZero() {
		return letterPlace{}, fmt.Errorf("%q is no dead letter's id", s)
	}
	return letterPlace{p, id}, nil
}

// letterRun is one partition's dead letters, on their way into the list.
type letterRun struct {
	partition int
	// letters are read and not listed; next is where to read on, if more.
	letters []DeadLetter
	next    EntryID
	more    bool
}

// place is where the run's next letter stands; ok is false if there is none, which without more means the end.
func (r *letterRun) place() (place letterPlace, ok bool) {
	if len(r.letters) == 0 {
		return letterPlace{r.partition, r.next}, false
	}
	place, err := parseLetterPlace(r.letters[0].ID)
	return place, err == nil
}

// DeadLetters lists dead letters, the newest first, of the group or of all if that is empty: n at most, and fewer at the end,
// once they take 1 MiB, or after a long stretch of other groups' letters. next is the cursor to go on with; only an empty one
// means the end. A dead letter's id is a cursor too, of what comes behind it. A list neither repeats nor leaves out what is
// there all the while. A list from the start that has nothing is GROUP_NOT_FOUND if there is no such group: that of a deleted one
// has the dead letters that it left.
func (a *Admin) DeadLetters(
	ctx context.Context, topic, group, cursor string, n int,
) (letters []DeadLetter, next string, err error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return nil, "", err
	}
	from := letterPlace{-1, EntryID{}}
	if cursor != "" {
		if from, err = parseLetterPlace(cursor); err != nil {
			return nil, "", fault.Wrap(err, fault.InvalidArgument, fault.PageTokenInvalid, "the cursor is none")
		}
	}
	runs := make([]*letterRun, t.Partitions)
	for p := range runs {
		runs[p] = &letterRun{partition: p, more: true}
		if cursor != "" {
			runs[p].next = from.before(p)
		}
	}
	list := &letterList{store: a.cfg.Store, topic: t, group: group, runs: runs}
	letters, last, err := list.page(ctx, n)
	if err != nil {
		return nil, "", lookFault(err)
	}
	if last == nil {
		if cursor == "" && len(letters) == 0 {
			err = t.known(group)
		}
		return letters, "", err
	}
	return letters, deadLetterID(last.partition, last.id), nil
}

// letterList merges partitions' dead letters.
type letterList struct {
	store LookStore
	topic *Topic
	group string
	runs  []*letterRun
	looks int
}

// page gives the list's next letters, and the place that it has come to; nil at the end.
func (l *letterList) page(ctx context.Context, n int) (letters []DeadLetter, last *letterPlace, err error) {
	size := 0
	for {
		if err := l.read(ctx); err != nil {
			return nil, nil, err
		}
		var head *letterRun
		var at letterPlace
		for _, r := range l.runs {
			place, ok := r.place()
			if !ok && !r.more {
				continue
			}
			if head == nil || place.compare(at) < 0 {
				head, at = r, place
			}
		}
		switch {
		case head == nil:
			return letters, nil, nil
		case len(head.letters) == 0: // it may have some up to here, and was read often enough
			return letters, &at, nil
		case len(letters) == n:
			return letters, last, nil
		}
		letter := head.letters[0]
		if size += letter.Size(); size > maxLetterPage && len(letters) > 0 {
			return letters, last, nil
		}
		head.letters = head.letters[1:]
		letters = append(letters, letter)
		last = &at
	}
}

// read reads on in the partitions of which nothing is at hand, until something is or the looks are used up.
func (l *letterList) read(ctx context.Context) error {
	n := min(max(readAhead/len(l.runs), 1), maxLetterRead)
	for {
		var empty []*letterRun
		for _, r := range l.runs {
			if len(r.letters) == 0 && r.more {
				empty = append(empty, r)
			}
		}
		if len(empty) == 0 || l.looks >= maxLetterLooks {
			return nil
		}
		l.looks += len(empty)
		err := each(ctx, len(empty), func(ctx context.Context, i int) (err error) {
			r := empty[i]
			r.letters, r.next, r.more, err = l.store.DeadLetters(ctx, l.topic.Ref(r.partition), l.group, r.next, n)
			return err
		})
		if err != nil {
			return err
		}
	}
}

// Replay gives dead letters back to their groups, each once however often it is called: those of ids, or else up to limit
// (DefaultReplay if 0) of the group's, or of all groups' if that is empty, the oldest of each partition first. They go to
// partition *to, or to their own if that is nil. more tells that there may be more: call again. A group that is not there, or
// not any more, is GROUP_NOT_FOUND: it can't be given anything.
func (a *Admin) Replay(
	ctx context.Context, topic, group string, ids []string, limit int, to *int,
) (replayed int64, more bool, err error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return 0, false, err
	}
	if err := t.known(group); err != nil {
		return 0, false, err
	}
	if to != nil && (*to < 0 || *to >= t.Partitions) {
		return 0, false, fault.Invalid("partition", int64(t.Partitions-1), "partition: the topic has %d", t.Partitions)
	}
	if limit < 0 {
		return 0, false, fault.Invalid("limit", MaxReplay, "limit: must be 0 to %d", MaxReplay)
	}
	byPartition, err := letterIDs(t, ids)
	if err != nil {
		return 0, false, err
	}
	left := min(cmp.Or(limit, DefaultReplay), MaxReplay)
	if len(ids) > 0 {
		left = len(ids)
	}
	for _, p := range chosen(t, byPartition) {
		if left <= 0 {
			return replayed, true, nil
		}
		dest := p
		if to != nil {
			dest = *to
		}
		n, again, err := a.replay(ctx, t, p, dest, group, byPartition[p], left)
		replayed, more = replayed+n, more || again
		if err != nil {
			return 0, false, undone(err)
		}
		if len(ids) == 0 {
			left -= int(n)
		}
	}
	return replayed, more && len(ids) == 0, nil
}

// replay gives back dead letters of one partition, in steps.
func (a *Admin) replay(
	ctx context.Context, t *Topic, from, to int, group string, ids []EntryID, limit int,
) (replayed int64, more bool, err error) {
	for more = true; more && (len(ids) > 0 || int(replayed) < limit); {
		n := min(limit-int(replayed), maxReplay)
		step := ids
		if ids != nil {
			step = ids[:min(len(ids), maxReplay)]
			ids = ids[len(step):]
			n = len(step)
		}
		some, again, err := a.cfg.Store.Replay(ctx, t, from, to, group, step, n)
		if err != nil {
			return replayed, true, err
		}
		if replayed += some; some > 0 && a.cfg.Hints != nil {
			a.cfg.Hints.Ready(t.Name, to)
		}
		if step != nil {
			more = len(ids) > 0
			continue
		}
		more = again && some > 0 // a step that gave nothing back would do so for ever
	}
	return replayed, more, nil
}

// Purge removes dead letters for good and tells how many: those of ids, or else all of the group, or of all groups if that is
// empty. confirm must be the topic's name; else it is CONFIRMATION_REQUIRED. Where there are none, nor the group, it is
// GROUP_NOT_FOUND; a deleted group's can be purged.
func (a *Admin) Purge(ctx context.Context, topic, group string, ids []string, confirm string) (int64, error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if err := confirmed(confirm, topic, "topic"); err != nil {
		return 0, err
	}
	byPartition, err := letterIDs(t, ids)
	if err != nil {
		return 0, err
	}
	var purged int64
	for _, p := range chosen(t, byPartition) {
		for more := true; more; {
			n, again, err := a.cfg.Store.Purge(ctx, t.Ref(p), group, byPartition[p], maxPurge)
			if err != nil {
				return 0, undone(err)
			}
			purged += n
			more = again && n > 0 && len(ids) == 0
		}
	}
	if purged == 0 {
		return 0, t.known(group)
	}
	return purged, nil
}

// letterIDs sorts dead letters' ids by their partitions; nil without any.
func letterIDs(t *Topic, ids []string) (map[int][]EntryID, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // a map without ids, which reads as any other
	}
	byPartition := make(map[int][]EntryID)
	for i, id := range ids {
		place, err := parseLetterPlace(id)
		if err != nil || place.partition >= t.Partitions {
			field := fmt.Sprintf("selection.ids.dead_letter_ids[%d]", i)
			return nil, fault.Invalid(field, 0, "%s: is not the id of a dead letter of this topic", field)
		}
		byPartition[place.partition] = append(byPartition[place.partition], place.id)
	}
	// One that is named twice goes once all the same.
	for p, ids := range byPartition {
		slices.SortFunc(ids, EntryID.Compare)
		byPartition[p] = slices.Compact(ids)
	}
	return byPartition, nil
}

// chosen gives the partitions that have some of the ids, or all if there are none, in order.
func chosen(t *Topic, byPartition map[int][]EntryID) []int {
	if byPartition != nil {
		return slices.Sorted(maps.Keys(byPartition))
	}
	all := make([]int, t.Partitions)
	for p := range all {
		all[p] = p
	}
	return all
}
