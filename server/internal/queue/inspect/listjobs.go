package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxPageBytes ends a page of messages once it has read so many bytes of records.
	maxPageBytes = qlog.MaxCallBytes
	// maxSteps bounds the calls of the store that read records for one page.
	maxSteps = 64
)

// JobQuery selects messages for a list.
type JobQuery struct {
	Topic string
	// Group is the group whose view is returned. It may be empty if State is Scheduled.
	Group string
	// State is AnyState, Scheduled, Waiting, Sent, Running or Retrying.
	State JobState
	// Key, if it is not empty, selects messages with this key.
	Key string
	// Full also returns bodies.
	Full bool
	// Cursor is empty for the first page. N is the most jobs of a page; 0 means DefaultPage.
	Cursor string
	N      int
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// The lists of a partition that a page goes through.
const (
	// listLog is the log behind the group's cursor, by ID.
	listLog = "l"
	// listHeld are rows and deliveries that sessions have, by ID.
	listHeld = "h"
	// listRetrying are rows that wait for a retry, by due time.
	listRetrying = "r"
	// listScheduled are the scheduled messages, by due time.
	listScheduled = "s"
)

// listsOf returns the lists that have the messages of a state.
func listsOf(state JobState) []string {
	switch state {
	case AnyState:
		return []string{listLog, listScheduled}
	case Scheduled:
		return []string{listScheduled}
	case Waiting:
		return []string{listLog}
	case Sent, Running:
		return []string{listHeld}
	case Retrying:
		return []string{listRetrying}
	default:
		return nil
	}
}

// jobPlace is a place in a list of jobs: behind an item of a list of a partition.
type jobPlace struct {
	partition int
	list      string
	// after is the ID, or the due time with the ID, of the last item that was looked at.
	after qlog.ID
	due   qlog.DuePlace
}

func (p *jobPlace) String() string {
	text := strconv.Itoa(p.partition) + " " + p.list + " " + strconv.FormatInt(int64(p.after), 10)
	if p.due != (qlog.DuePlace{}) {
		text += " " + strconv.FormatInt(p.due.Due.UnixMilli(), 10) + " " + p.due.ID
	}
	return text
}

func parseJobPlace(cursor string, lists []string) (jobPlace, error) {
	if cursor == "" {
		return jobPlace{list: lists[0]}, nil
	}
	parts := strings.Split(cursor, " ")
	if len(parts) != 3 && len(parts) != 5 || !slices.Contains(lists, parts[1]) {
		return jobPlace{}, badCursor()
	}
	partition, err1 := strconv.Atoi(parts[0])
	after, err2 := strconv.ParseInt(parts[2], 10, 64)
	p := jobPlace{partition: partition, list: parts[1], after: qlog.ID(after)}
	var err3 error
	if len(parts) == 5 {
		var ms int64
		ms, err3 = strconv.ParseInt(parts[3], 10, 64)
		p.due = qlog.DuePlace{Due: time.UnixMilli(ms), ID: parts[4]}
	}
	if errors.Join(err1, err2, err3) != nil || partition < 0 || after < 0 {
		return jobPlace{}, badCursor()
	}
	return p, nil
}

// Jobs lists a group's messages in a state, or all that it has not settled, partition by partition.
// In each, they are listed by ID; those that are scheduled, at the end, and those that wait for a
// retry by the time when they are due. A page reads at most 1 MiB of records, or one record, and
// next is its cursor.
func (s *Service) Jobs(ctx context.Context, q JobQuery) (jobs []Job, next string, err error) {
	t, err := s.topic(ctx, q.Topic)
	if err != nil {
		return nil, "", err
	}
	if q.Group != "" && t.Group(q.Group) == nil {
		return nil, "", noGroup()
	}
	lists := listsOf(q.State)
	switch {
	case lists == nil:
		return nil, "", fault.Invalid("state", 0, "state: settled messages are not listed")
	case q.Group == "" && q.State != Scheduled:
		return nil, "", fault.Invalid("group", 0, "group: required unless the state is SCHEDULED")
	}
	place, err := parseJobPlace(q.Cursor, lists)
	if err != nil {
		return nil, "", err
	}
	l := &jobList{s: s, t: t, q: q, lists: lists, place: place, n: pageSize(q.N)}
	if q.Group != "" && q.State != Scheduled && q.State != Retrying {
		l.holdings = s.holdings(ctx, q.Topic, q.Group)
	}
	if err := l.page(ctx); err != nil {
		return nil, "", lookFault(err)
	}
	if l.ended {
		return l.jobs, "", nil
	}
	return l.jobs, l.place.String(), nil
}

// jobList is a page that is being read.
type jobList struct {
	s        *Service
	t        *qlog.Topic
	q        JobQuery
	lists    []string
	place    jobPlace
	n        int
	holdings holdings

	jobs  []Job
	bytes int
	// full: the page has no room for the next job. ended: there is none.
	full, ended bool
}

// page reads until the page is full or the list ends.
func (l *jobList) page(ctx context.Context) error {
	for step := 0; !l.full && len(l.jobs) < l.n && l.bytes < maxPageBytes/2 && step < maxSteps; step++ {
		if l.place.partition >= l.t.Partitions {
			l.ended = true
			return nil
		}
		more, err := l.step(ctx)
		if err != nil {
			return err
		}
		if !more {
			l.nextList()
		}
	}
	l.ended = l.place.partition >= l.t.Partitions
	return nil
}

// nextList goes on with the next list of the partition, or with the next partition.
func (l *jobList) nextList() {
	at := slices.Index(l.lists, l.place.list) + 1
	if at < len(l.lists) {
		l.place = jobPlace{partition: l.place.partition, list: l.lists[at]}
		return
	}
	l.place = jobPlace{partition: l.place.partition + 1, list: l.lists[0]}
}

// step reads on in the present list, and reports whether it may have more.
func (l *jobList) step(ctx context.Context) (more bool, err error) {
	switch l.place.list {
	case listLog:
		more, err = l.log(ctx)
	case listHeld:
		more, err = l.held(ctx)
	case listRetrying:
		more, err = l.retrying(ctx)
	default:
		more, err = l.scheduled(ctx)
	}
	if errors.Is(err, qlog.ErrNoGroup) {
		return false, nil // its state was lost in this partition
	}
	return more, err
}

func (l *jobList) ref() qlog.GroupRef {
	return qlog.GroupRef{Ref: l.t.Ref(l.place.partition), Group: l.q.Group}
}

// fits counts a record that was read. It reports false if the page has no room for it: then the
// page ends before it.
func (l *jobList) fits(e *qlog.Entry) bool {
	if l.full = l.full || len(l.jobs) >= l.n || l.bytes > 0 && l.bytes+len(e.Body) > maxPageBytes; l.full {
		return false
	}
	l.bytes += len(e.Body)
	return true
}

// wanted reports whether a record has the key.
func (l *jobList) wanted(e *qlog.Entry) bool { return l.q.Key == "" || e.Key == l.q.Key }

// add adds an entry's job if it is in the state.
func (l *jobList) add(e *qlog.Entry, states *qlog.EntryStates) {
	in := l.s.inGroup(l.q.Group, l.place.partition, e.Pos, states, &l.holdings)
	if in.State == Settled || l.q.State != AnyState && in.State != l.q.State {
		return
	}
	j := jobOf(l.place.partition, e, l.q.Full)
	j.Groups = []JobInGroup{in}
	l.jobs = append(l.jobs, j)
}

// log reads entries of the log.
func (l *jobList) log(ctx context.Context) (more bool, err error) {
	ref, store := l.ref(), l.s.cfg.Store
	if l.place.after == 0 {
		states, err := store.States(ctx, ref, nil)
		if err != nil {
			return false, err
		}
		l.place.after = states.Cursor.ID
	}
	n := min(l.n-len(l.jobs), qlog.MaxReadEntries)
	if l.q.State != AnyState || l.q.Key != "" {
		n = qlog.MaxReadEntries
	}
	entries, err := store.Walk(ctx, ref.Ref, l.place.after, n)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	states, err := store.States(ctx, ref, positions(entries))
	if err != nil {
		return false, err
	}
	for i := range entries {
		e := &entries[i]
		if !l.fits(e) {
			return true, nil
		}
		l.place.after = e.ID
		if l.wanted(e) && (e.Only == "" || e.Only == l.q.Group) {
			l.add(e, &states)
		}
	}
	return true, nil
}

func positions(entries []qlog.Entry) []qlog.Pos {
	at := make([]qlog.Pos, len(entries))
	for i := range entries {
		at[i] = entries[i].Pos
	}
	return at
}

// held reads what sessions hold, according to the rows and to the sessions.
func (l *jobList) held(ctx context.Context) (more bool, err error) {
	ref, n := l.ref(), min(l.n-len(l.jobs), qlog.MaxReadEntries)
	rows, err := l.s.cfg.Store.RowsIn(ctx, ref, []qlog.RowState{qlog.RowSent, qlog.RowBegun, qlog.RowLoose}, l.place.after, n)
	if err != nil {
		return false, err
	}
	ids := make([]qlog.ID, 0, len(rows))
	for i := range rows {
		ids = append(ids, rows[i].ID)
	}
	for key := range l.holdings.held {
		if key.partition == ref.Partition && key.id > l.place.after {
			ids = append(ids, key.id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	more = len(ids) > n || len(rows) == n
	return l.entries(ctx, ids[:min(len(ids), n)], more, func(id qlog.ID) { l.place.after = id })
}

// entries reads entries by their IDs. looked is called with each ID that was looked at.
func (l *jobList) entries(ctx context.Context, ids []qlog.ID, more bool, looked func(qlog.ID)) (bool, error) {
	if len(ids) == 0 {
		return more, nil
	}
	ref := l.ref()
	entries, n, err := l.s.cfg.Store.EntriesAt(ctx, ref.Ref, ids)
	if err != nil {
		return false, err
	}
	states, err := l.s.cfg.Store.States(ctx, ref, positions(entries))
	if err != nil {
		return false, err
	}
	for _, id := range ids[:n] {
		if len(entries) > 0 && entries[0].ID == id {
			e := &entries[0]
			if !l.fits(e) {
				return true, nil
			}
			if l.wanted(e) {
				l.add(e, &states)
			}
			entries = entries[1:]
		}
		looked(id)
	}
	return more || n < len(ids), nil
}

// retrying reads what waits for a retry.
func (l *jobList) retrying(ctx context.Context) (more bool, err error) {
	rows, more, err := l.s.cfg.Store.ListRetrying(ctx, l.ref(), l.place.due, min(l.n-len(l.jobs), qlog.MaxReadEntries))
	if err != nil {
		return false, err
	}
	ids, places := make([]qlog.ID, len(rows)), map[qlog.ID]qlog.DuePlace{}
	for i := range rows {
		ids[i] = rows[i].ID
		places[ids[i]] = rows[i].Place()
	}
	return l.entries(ctx, ids, more, func(id qlog.ID) { l.place.due = places[id] })
}

// scheduled reads scheduled messages.
func (l *jobList) scheduled(ctx context.Context) (more bool, err error) {
	messages, more, err := l.s.cfg.Store.ListScheduled(ctx, l.t.Ref(l.place.partition), l.place.due, l.n-len(l.jobs))
	if err != nil {
		return false, err
	}
	for i := range messages {
		m := &messages[i]
		if !l.fits(&m.Entry) {
			return true, nil
		}
		l.place.due = m.Place()
		if !l.wanted(&m.Entry) {
			continue
		}
		j := scheduledJob(l.place.partition, &m.Entry, m.Due, l.q.Full)
		if l.q.Group != "" {
			j.Groups = []JobInGroup{{Group: l.q.Group, State: Scheduled}}
		}
		l.jobs = append(l.jobs, j)
	}
	return more, nil
}
