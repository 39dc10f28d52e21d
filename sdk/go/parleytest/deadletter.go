package parleytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// deadLetter is a dead letter and its message.
type deadLetter struct {
	*parleyv1.DeadLetter

	message *message
}

// hasLetters reports whether a group exists or has dead letters.
func (t *topic) hasLetters(group string) bool {
	return t.groups[group] != nil || slices.ContainsFunc(t.dead, func(d *deadLetter) bool { return d.GetGroup() == group })
}

// ListDeadLetters implements the service. It returns all dead letters on one page.
func (h adminHandler) ListDeadLetters(
	ctx context.Context, req *parleyv1.ListDeadLettersRequest,
) (*parleyv1.ListDeadLettersResponse, error) {
	return do(ctx, h.s, "ListDeadLetters", req, func() (*parleyv1.ListDeadLettersResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if req.GetGroup() != "" && !t.hasLetters(req.GetGroup()) {
			return nil, noGroup("group")
		}
		res := &parleyv1.ListDeadLettersResponse{}
		for _, d := range slices.Backward(t.dead) {
			if req.GetGroup() != "" && req.GetGroup() != d.GetGroup() || req.GetCode() != "" && req.GetCode() != d.GetCode() {
				continue
			}
			letter := proto.CloneOf(d.DeadLetter)
			if !req.GetFull() {
				letter.Payload, letter.Headers = nil, nil
			}
			res.DeadLetters = append(res.DeadLetters, letter)
		}
		return res, nil
	})
}

// remove removes the selected dead letters and returns them, oldest first, at most limit; a
// negative limit means all. more is true if selected dead letters are left.
func (t *topic) removeLetters(selection *parleyv1.DeadLetterSelection, limit int) (removed []*deadLetter, more bool, err error) {
	ids := selection.GetIds().GetDeadLetterIds()
	for _, id := range ids {
		var partition, milli, seq int
		if n, err := fmt.Sscanf(id, "%d-%d-%d", &partition, &milli, &seq); err != nil || n != 3 {
			return nil, false, invalidField("selection.ids.dead_letter_ids", 0)
		}
	}
	t.dead = slices.DeleteFunc(t.dead, func(d *deadLetter) bool {
		wanted := selection.GetAll() != nil || selection.GetGroup() == d.GetGroup() || slices.Contains(ids, d.GetDeadLetterId())
		if wanted && limit == 0 {
			more = true
		}
		if !wanted || limit == 0 {
			return false
		}
		limit--
		removed = append(removed, d)
		return true
	})
	return removed, more, nil
}

// ReplayDeadLetters implements the service.
func (h adminHandler) ReplayDeadLetters(
	ctx context.Context, req *parleyv1.ReplayDeadLettersRequest,
) (*parleyv1.ReplayDeadLettersResponse, error) {
	return do(ctx, h.s, "ReplayDeadLetters", req, func() (*parleyv1.ReplayDeadLettersResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if group := req.GetSelection().GetGroup(); group != "" && t.groups[group] == nil {
			return nil, noGroup("selection.group")
		}
		to := h.s.topics[req.GetToTopic()]
		switch {
		case req.GetToTopic() == "":
		case to == t:
			return nil, invalidField("to_topic", 0)
		case to == nil:
			return nil, noTopic("to_topic")
		default:
		}
		removed, more, err := t.removeLetters(req.GetSelection(), cmp.Or(int(req.GetLimit()), 1000))
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ReplayDeadLettersResponse{More: more}
		for _, d := range removed {
			if !h.s.replay(t, to, d) {
				t.dead = append(t.dead, d)
				continue
			}
			res.Replayed++
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// replay delivers a dead letter to its group again, at the end of the topic, or if to is not nil
// produces it to that topic. It returns false if that is not possible.
func (s *shared) replay(t, to *topic, d *deadLetter) bool {
	if to != nil {
		again := proto.CloneOf(d.message.wire)
		again.Unique, again.Due, again.IdempotencyKey = nil, nil, ""
		_, _, err := to.store(again)
		return err == nil
	}
	g := t.groups[d.GetGroup()]
	if g == nil {
		return false
	}
	t.seq++
	j := g.newJob(d.message)
	j.seq = t.seq
	g.jobs = append(g.jobs, j)
	g.count(d.message).Replayed++
	return true
}

// PurgeDeadLetters implements the service.
func (h adminHandler) PurgeDeadLetters(
	ctx context.Context, req *parleyv1.PurgeDeadLettersRequest,
) (*parleyv1.PurgeDeadLettersResponse, error) {
	return do(ctx, h.s, "PurgeDeadLetters", req, func() (*parleyv1.PurgeDeadLettersResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		group := req.GetSelection().GetGroup()
		switch {
		case err != nil:
			return nil, err
		case req.GetConfirm() != req.GetTopic():
			return nil, unconfirmed()
		case group != "" && !t.hasLetters(group):
			return nil, noGroup("selection.group")
		default:
		}
		removed, _, err := t.removeLetters(req.GetSelection(), -1)
		return &parleyv1.PurgeDeadLettersResponse{Purged: int64(len(removed))}, err
	})
}
