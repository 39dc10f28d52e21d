package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// letterReads is about how many headers are read ahead of all partitions, maxLetterLooks how
	// many reads a page takes at most: letters that are not selected are skipped.
	letterReads, maxLetterLooks = 256, 4096
	// DefaultReplay is how many dead letters a Replay replays unless the caller says otherwise.
	DefaultReplay = 1000
	// MaxReplay bounds them.
	MaxReplay = 10_000
	// replayStep is how many one step of the store replays.
	replayStep = 100
)

// Letter is a dead letter. Its ID begins with the partition.
type Letter struct {
	ID        string
	Partition int
	qlog.Letter
}

// letterID returns the ID of a dead letter.
func letterID(partition int, id qlog.LetterID) string {
	return strconv.Itoa(partition) + "-" + id.String()
}

func parseLetterID(s string) (partition int, id qlog.LetterID, err error) {
	p, rest, _ := strings.Cut(s, "-")
	partition, err = strconv.Atoi(p)
	if err == nil {
		id, err = qlog.ParseLetterID(rest)
	}
	if err != nil || partition < 0 || letterID(partition, id) != s {
		return 0, qlog.LetterID{}, fmt.Errorf("%q is not the ID of a dead letter", s)
	}
	return partition, id, nil
}

// letterPlace is a place in the list of a topic's dead letters, newest first, and of one ID by
// partition.
type letterPlace struct {
	partition int
	id        qlog.LetterID
}

func (l letterPlace) compare(o letterPlace) int {
	return cmp.Or(o.id.Compare(l.id), cmp.Compare(l.partition, o.partition))
}

// before returns the ID before which a partition's letters have not been listed.
func (l letterPlace) before(partition int) qlog.LetterID {
	switch {
	case partition <= l.partition:
		return l.id
	case l.id.Seq == math.MaxInt64:
		return qlog.LetterID{Milli: l.id.Milli + 1}
	default:
		return qlog.LetterID{Milli: l.id.Milli, Seq: l.id.Seq + 1}
	}
}

// LetterQuery selects dead letters for a list.
type LetterQuery struct {
	Topic string
	// Group and Code, if they are not empty, select those of a group, and with a code.
	Group, Code string
	// Full also returns bodies.
	Full bool
	// Cursor is empty for the first page. N is the most letters of a page; 0 means DefaultPage.
	Cursor string
	N      int
}

// Letters lists dead letters, the newest first. Full ones have at most 1 MiB a page, or one does.
// next is the cursor of the next page. GROUP_NOT_FOUND if the group does not exist and has no dead
// letters.
func (s *Service) Letters(ctx context.Context, q LetterQuery) (letters []Letter, next string, err error) {
	t, err := s.topic(ctx, q.Topic)
	if err != nil {
		return nil, "", err
	}
	l := &letterList{s: s, t: t, q: q, n: pageSize(q.N)}
	for p := range t.Partitions {
		l.runs = append(l.runs, &letterRun{partition: p, more: true})
	}
	if q.Cursor != "" {
		p, id, err := parseLetterID(q.Cursor)
		if err != nil {
			return nil, "", badCursor()
		}
		for _, r := range l.runs {
			r.next = letterPlace{p, id}.before(r.partition)
		}
	}
	if err := l.page(ctx); err != nil {
		return nil, "", lookFault(err)
	}
	if l.last != nil {
		next = letterID(l.last.partition, l.last.id)
	} else if q.Cursor == "" && len(l.letters) == 0 && q.Code == "" && q.Group != "" && t.Group(q.Group) == nil {
		return nil, "", noGroup()
	}
	if q.Full {
		if err := s.fill(ctx, t, l.letters); err != nil {
			return nil, "", lookFault(err)
		}
	}
	return l.letters, next, nil
}

// fill reads the records of letters. One that is gone meanwhile stays a header.
func (s *Service) fill(ctx context.Context, t *qlog.Topic, letters []Letter) error {
	byPartition, at := map[int][]qlog.LetterID{}, map[letterPlace]int{}
	for i := range letters {
		l := &letters[i]
		byPartition[l.Partition] = append(byPartition[l.Partition], l.Letter.ID)
		at[letterPlace{l.Partition, l.Letter.ID}] = i
	}
	partitions := sortedKeys(byPartition)
	return each(ctx, len(partitions), func(ctx context.Context, i int) error {
		p := partitions[i]
		sel := qlog.LetterSelection{IDs: byPartition[p]}
		for more := true; more; {
			full, step, err := s.cfg.Store.TakeLetters(ctx, t.Ref(p), sel, qlog.MaxLetters)
			if err != nil {
				return err
			}
			for k := range full {
				letters[at[letterPlace{p, full[k].ID}]].Letter = full[k]
			}
			sel, more = step.Rest, step.More
		}
		return nil
	})
}

// letterRun is one partition's dead letters on their way into the list.
type letterRun struct {
	partition int
	// letters are read and not listed; next is where to read on, if more.
	letters []qlog.Letter
	next    qlog.LetterID
	more    bool
}

// place returns where the run's next letter is. ok is false if none is read.
func (r *letterRun) place() (place letterPlace, ok bool) {
	if len(r.letters) == 0 {
		return letterPlace{r.partition, r.next}, false
	}
	return letterPlace{r.partition, r.letters[0].ID}, true
}

// letterList merges partitions' dead letters into a page.
type letterList struct {
	s     *Service
	t     *qlog.Topic
	q     LetterQuery
	n     int
	runs  []*letterRun
	looks int

	letters []Letter
	// last is the last letter that was listed or skipped; nil if the list ended.
	last *letterPlace
}

// page reads the list's next letters.
func (l *letterList) page(ctx context.Context) error {
	for size := 0; ; {
		if err := l.read(ctx); err != nil {
			return err
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
		if head == nil {
			l.last = nil
			return nil
		}
		if len(head.letters) == 0 { // it may have some from here on, and enough was read
			l.last = &at
			return nil
		}
		letter := head.letters[0]
		if l.q.Full {
			size += letter.PayloadBytes
		}
		if len(l.letters) == l.n || size > maxPageBytes && len(l.letters) > 0 {
			return nil
		}
		head.letters = head.letters[1:]
		l.letters = append(l.letters, Letter{ID: letterID(head.partition, letter.ID), Partition: head.partition, Letter: letter})
		l.last = &at
	}
}

// read reads on in the partitions of which nothing is at hand, until something is or enough was
// read.
func (l *letterList) read(ctx context.Context) error {
	n := min(max(letterReads/len(l.runs), 1), l.n)
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
		err := each(ctx, len(empty), func(ctx context.Context, i int) error {
			r := empty[i]
			page, err := l.s.cfg.Store.Letters(ctx, l.t.Ref(r.partition), qlog.LetterQuery{Before: r.next, Group: l.q.Group, Code: l.q.Code, N: n})
			r.letters, r.more = page.Letters, page.More
			if page.More {
				r.next = page.Next
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// Selection selects dead letters of a topic: IDs, or all of Group, or, if that is empty too, all.
type Selection struct {
	IDs   []string
	Group string
}

// byPartition returns the selection in each partition that has a part of it.
func (sel *Selection) byPartition(t *qlog.Topic) (map[int]qlog.LetterSelection, error) {
	all := map[int]qlog.LetterSelection{}
	if len(sel.IDs) == 0 {
		for p := range t.Partitions {
			all[p] = qlog.LetterSelection{Group: sel.Group}
		}
		return all, nil
	}
	if len(sel.IDs) > qlog.MaxLetters {
		return nil, fault.Invalid("selection.ids", qlog.MaxLetters, "selection.ids: at most %d", qlog.MaxLetters)
	}
	for _, text := range sel.IDs {
		p, id, err := parseLetterID(text)
		if err != nil {
			return nil, fault.Invalid("selection.ids", 0, "selection.ids: %s", err)
		}
		if p < t.Partitions {
			part := all[p]
			part.IDs = append(part.IDs, id)
			all[p] = part
		}
	}
	return all, nil
}

// Replay replays up to limit (0: DefaultReplay) dead letters, each once, however often it is
// called: to their groups, or if to is not empty to all groups of another topic. more reports
// whether there may be more. Without IDs the oldest of each partition are first. GROUP_NOT_FOUND if
// the selected group does not exist. If it fails, what it replayed before stays so.
func (s *Service) Replay(ctx context.Context, topic string, sel Selection, limit int, to string) (replayed int, more bool, err error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return 0, false, err
	}
	if sel.Group != "" && t.Group(sel.Group) == nil {
		return 0, false, noGroup()
	}
	if limit < 0 {
		return 0, false, fault.Invalid("limit", MaxReplay, "limit: must be 0 to %d", MaxReplay)
	}
	if to != "" {
		if err := s.destination(ctx, topic, to); err != nil {
			return 0, false, err
		}
	}
	parts, err := sel.byPartition(t)
	if err != nil {
		return 0, false, err
	}
	left := min(cmp.Or(limit, DefaultReplay), MaxReplay)
	for _, p := range sortedKeys(parts) {
		if left <= 0 {
			return replayed, true, nil
		}
		r := replay{s: s, t: t, partition: p, to: to}
		n, again, err := r.run(ctx, parts[p], left)
		replayed, left, more = replayed+n, left-n, more || again
		if err != nil {
			return replayed, true, writeFault(err)
		}
	}
	return replayed, more, nil
}

// destination checks the topic that dead letters are to be replayed to.
func (s *Service) destination(ctx context.Context, topic, to string) error {
	if to == topic || s.cfg.Producer == nil {
		return fault.Invalid("to_topic", 0, "to_topic: must be another topic")
	}
	t, err := s.cfg.Topics.Topic(ctx, to)
	switch {
	case errors.Is(err, qlog.ErrNoTopic), fault.Is(err, fault.TopicNotFound), err == nil && t.State != qlog.Live:
		return noTopic("to_topic")
	default:
		return lookFault(err)
	}
}

// replay replays dead letters of one partition.
type replay struct {
	s         *Service
	t         *qlog.Topic
	partition int
	to        string
}

// run replays up to limit of a selection, in steps.
func (r *replay) run(ctx context.Context, sel qlog.LetterSelection, limit int) (replayed int, more bool, err error) {
	for more = true; more && replayed < limit; {
		n := min(limit-replayed, replayStep)
		var step qlog.LetterStep
		err := repeat(func() (err error) {
			if r.to != "" {
				step, err = r.move(ctx, sel, n)
			} else {
				step, err = r.s.cfg.Store.Replay(ctx, r.t.Ref(r.partition), r.t.Bounds, sel, n)
			}
			return err
		})
		if err != nil {
			return replayed, true, err
		}
		if step.Done > 0 && r.to == "" {
			r.s.ready(r.t.Name, r.partition)
		}
		replayed += step.Done
		sel, more = step.Rest, step.More
	}
	return replayed, more, nil
}

// move produces dead letters to another topic, and then removes those that are stored there. A
// repeat finds them stored under their keys.
func (r *replay) move(ctx context.Context, sel qlog.LetterSelection, n int) (qlog.LetterStep, error) {
	ref, store := r.t.Ref(r.partition), r.s.cfg.Store
	letters, step, err := store.TakeLetters(ctx, ref, sel, n)
	if err != nil {
		return qlog.LetterStep{}, err
	}
	var keyed []KeyedLetter
	for i := range letters {
		if letters[i].Unreadable == nil {
			key := "replay:" + r.t.UID + ":" + letterID(r.partition, letters[i].ID)
			keyed = append(keyed, KeyedLetter{Key: key, Letter: letters[i]})
		}
	}
	step.Done = 0
	if len(keyed) == 0 {
		return step, nil
	}
	errs, err := r.s.cfg.Producer.ProduceLetters(ctx, r.to, keyed)
	if err != nil {
		return qlog.LetterStep{}, err
	}
	var ids []qlog.LetterID
	for i := range keyed {
		if i < len(errs) && errs[i] == nil {
			ids = append(ids, keyed[i].ID)
		}
	}
	if len(ids) > 0 {
		removed, err := store.Purge(ctx, ref, qlog.LetterSelection{IDs: ids}, len(ids))
		if err != nil {
			return qlog.LetterStep{}, err
		}
		step.Done = removed.Done
	}
	if len(ids) < len(keyed) && step.Done == 0 {
		return qlog.LetterStep{}, errors.Join(errs...)
	}
	return step, nil
}

// Purge removes dead letters permanently, and returns how many. confirm must be the topic's name.
// GROUP_NOT_FOUND if the selected group does not exist and has none.
func (s *Service) Purge(ctx context.Context, topic string, sel Selection, confirm string) (int, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if err := confirmed(confirm, topic); err != nil {
		return 0, err
	}
	parts, err := sel.byPartition(t)
	if err != nil {
		return 0, err
	}
	purged := 0
	for _, p := range sortedKeys(parts) {
		part := parts[p]
		for more := true; more; {
			var step qlog.LetterStep
			err := repeat(func() (err error) {
				step, err = s.cfg.Store.Purge(ctx, t.Ref(p), part, qlog.MaxLetters)
				return err
			})
			purged += step.Done
			if err != nil {
				return purged, writeFault(err)
			}
			part, more = step.Rest, step.More
		}
	}
	if purged == 0 && sel.Group != "" && t.Group(sel.Group) == nil {
		return 0, noGroup()
	}
	return purged, nil
}
