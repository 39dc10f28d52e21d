package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// JobState is the state of a message in a group.
type JobState uint8

// The states, with the numbers of parley.v1.JobState. AnyState is only for lists.
const (
	AnyState JobState = iota
	Scheduled
	Waiting
	Sent
	Running
	Retrying
	Settled
	Dead
)

// Job is a message and what groups did with it.
type Job struct {
	MessageID string
	Partition int
	Key       string
	// Body is the encoded message. It is nil in a summary, and if it cannot be decoded.
	Body         []byte
	PayloadBytes int
	ProducedAt   time.Time
	// Due is when a message that was scheduled is or was due.
	Due time.Time
	// Groups are sorted by name.
	Groups []JobInGroup
}

// JobInGroup is the state of a message in one group.
type JobInGroup struct {
	Group string
	State JobState
	// Attempts were charged, Deliveries are all.
	Attempts, Deliveries int
	// Consumer, Session (a digest) and Node are of the session that has it. Consumer and Node are
	// empty if the session's node did not answer.
	Consumer, Session, Node string
	// Since is when the state began, RetryAt when it is retried; zero if it is not known.
	Since, RetryAt time.Time
	// Code and Reason are those of the last failure.
	Code, Reason string
	// Suspect: its worker was lost while it handled the message.
	Suspect bool
}

// jobOf returns a job without groups.
func jobOf(partition int, e *qlog.Entry, full bool) Job {
	j := Job{MessageID: e.MessageID, Partition: partition, Key: e.Key, PayloadBytes: e.PayloadBytes, ProducedAt: e.ProducedAt}
	if full && e.Unreadable == nil {
		j.Body = e.Body
	}
	if _, _, scheduled, ok := qlog.ParseMessageID(e.MessageID); ok && scheduled {
		j.Due = e.ProducedAt
	}
	return j
}

// scheduledJob is a message that is not due.
func scheduledJob(partition int, e *qlog.Entry, due time.Time, full bool) Job {
	j := jobOf(partition, e, full)
	j.Due = due
	return j
}

// holdings are the deliveries that sessions hold, and the sessions by their digests.
type holdings struct {
	held     map[heldKey]holding
	sessions map[string]*qlog.SessionInfo
}

type heldKey struct {
	partition int
	id        qlog.ID
}

type holding struct {
	*qlog.HeldInfo

	by *qlog.SessionInfo
}

// holdings asks for the sessions of a group. If that fails there are none: what is stored is worth
// something without them.
func (s *Service) holdings(ctx context.Context, topic, group string) holdings {
	h := holdings{map[heldKey]holding{}, map[string]*qlog.SessionInfo{}}
	sessions, _, err := s.cfg.Consumers.Sessions(ctx, topic, group)
	if err != nil {
		s.cfg.Logger.DebugContext(ctx, "the sessions of a group are not known", "topic", topic, "group", group, "error", err)
	}
	for i := range sessions {
		info := &sessions[i]
		h.sessions[info.Session] = info
		for k := range info.Held {
			one := &info.Held[k]
			key := heldKey{one.Partition, one.ID}
			// A session that lost a delivery may not know it yet.
			if other, ok := h.held[key]; !ok || other.Gen < one.Gen {
				h.held[key] = holding{one, info}
			}
		}
	}
	return h
}

// inGroup returns the state of an entry in a group.
func (s *Service) inGroup(group string, partition int, at qlog.Pos, states *qlog.EntryStates, h *holdings) JobInGroup {
	j := JobInGroup{Group: group}
	switch {
	case at.ID > states.Sent.ID:
		j.State = Waiting
		return j
	case !states.Open[at.ID]:
		j.State = Settled
		return j
	default:
	}
	row, hasRow := states.Rows[at.ID]
	j.State = Waiting
	if hasRow {
		s.fromRow(&j, &row, h)
	}
	if one, ok := h.held[heldKey{partition, at.ID}]; ok && one.Gen >= row.Gen && j.State != Retrying {
		j.State, j.Deliveries, j.Since = Sent, one.Gen, one.Since
		if one.Begun || row.State == qlog.RowLoose {
			j.State = Running
		}
		j.Consumer, j.Session, j.Node = one.by.Consumer, one.by.Session, one.by.Node
	}
	return j
}

// fromRow fills in what a row says.
func (s *Service) fromRow(j *JobInGroup, row *qlog.Row, h *holdings) {
	j.State = map[qlog.RowState]JobState{
		qlog.RowWaiting: Waiting, qlog.RowSent: Sent, qlog.RowBegun: Running, qlog.RowLoose: Running, qlog.RowRetrying: Retrying,
		qlog.RowSuspect: Retrying,
	}[row.State]
	j.Attempts, j.Deliveries, j.Since, j.Code, j.Reason = row.Attempts, row.Gen, row.Since, row.Code, row.Reason
	j.Suspect = row.State == qlog.RowSuspect
	switch row.State {
	case qlog.RowRetrying, qlog.RowSuspect:
		j.RetryAt = row.Due
	case qlog.RowSent, qlog.RowBegun:
		j.Session = s.cfg.Digest(row.Session)
		if by := h.sessions[j.Session]; by != nil {
			j.Consumer, j.Node = by.Consumer, by.Node
		}
	default:
	}
}

// Job returns a message and its state in each group. MESSAGE_NOT_FOUND.
func (s *Service) Job(ctx context.Context, topic, messageID string) (Job, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return Job{}, err
	}
	partition, _, _, ok := qlog.ParseMessageID(messageID)
	if !ok || partition >= t.Partitions {
		return Job{}, noMessage()
	}
	names := make([]string, len(t.Groups))
	for i := range t.Groups {
		names[i] = t.Groups[i].Name
	}
	found, err := s.cfg.Store.FindMessage(ctx, t.Ref(partition), messageID, names)
	if err != nil {
		return Job{}, lookFault(err)
	}
	job := jobOf(partition, &found.Entry, true)
	if !found.Due.IsZero() {
		job = scheduledJob(partition, &found.Entry, found.Due, true)
	}
	groups := make([]JobInGroup, len(names))
	err = each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		groups[i], err = s.jobInGroup(ctx, qlog.GroupRef{Ref: t.Ref(partition), Group: names[i]}, &found)
		return err
	})
	if err != nil {
		return Job{}, lookFault(err)
	}
	job.Groups = groups
	return job, nil
}

// jobInGroup returns the state of a message that was found.
func (s *Service) jobInGroup(ctx context.Context, ref qlog.GroupRef, found *qlog.Found) (JobInGroup, error) {
	at, inLog := found.Replayed[ref.Group]
	if !inLog {
		at = found.Entry.Pos
	}
	letter, dead := found.Letters[ref.Group]
	j := JobInGroup{Group: ref.Group, State: Settled}
	switch {
	case !found.Due.IsZero():
		j.State = Scheduled
		return j, nil
	case at.ID == 0:
	default:
		states, err := s.cfg.Store.States(ctx, ref, []qlog.Pos{at})
		if err != nil && !errors.Is(err, qlog.ErrNoGroup) {
			return j, err
		}
		var h holdings
		if states.Open[at.ID] {
			h = s.holdings(ctx, ref.Topic, ref.Group)
		}
		if err == nil {
			j = s.inGroup(ref.Group, ref.Partition, at, &states, &h)
		}
	}
	if j.State == Settled && dead {
		j.State, j.Attempts, j.Code, j.Reason, j.Since = Dead, letter.Attempts, letter.Code, letter.Reason, letter.ID.Time()
	}
	return j, nil
}

// Retry makes messages of a group due now that wait for a retry. It returns for how many it did;
// the others did not wait for one.
func (s *Service) Retry(ctx context.Context, topic, group string, messageIDs []string) (int, error) {
	t, err := s.group(ctx, topic, group)
	if err != nil {
		return 0, err
	}
	if len(messageIDs) > qlog.MaxBatch {
		return 0, fault.Invalid("message_ids", qlog.MaxBatch, "message_ids: at most %d", qlog.MaxBatch)
	}
	byPartition := map[int][]string{}
	for _, id := range messageIDs {
		if p, _, _, ok := qlog.ParseMessageID(id); ok && p < t.Partitions {
			byPartition[p] = append(byPartition[p], id)
		}
	}
	partitions := sortedKeys(byPartition)
	counts := make([]int, len(partitions))
	err = each(ctx, len(partitions), func(ctx context.Context, i int) error {
		ref := qlog.GroupRef{Ref: t.Ref(partitions[i]), Group: group}
		places, err := s.cfg.Store.Places(ctx, ref, byPartition[partitions[i]])
		if err != nil {
			return err
		}
		ids := make([]qlog.ID, 0, len(places))
		for _, id := range places {
			if id != 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) > 0 {
			counts[i], err = s.cfg.Consumers.Retry(ctx, ref, ids)
		}
		return err
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, writeFault(err)
}
