package fanout

import (
	"context"
	"errors"
	"fmt"

	"github.com/parleyhq/parley/server/internal/fault"
)

const (
	// noRev is the access revision of a log without entries, and of a subscription whose subject was
	// not checked. It is below all others.
	noRev = -1
	// alwaysAdmitted is the revision of a subscription if there are no checks.
	alwaysAdmitted = 1 << 62
	// maxAdmissions is the maximum number of subjects in one call of Admission.Readers.
	maxAdmissions = 500
)

// admittedAt returns the access revision at which a new subscription is admitted.
func (h *Hub) admittedAt(want *Position) int64 {
	if h.cfg.Admission == nil {
		return alwaysAdmitted
	}
	if rev, ok := h.cfg.Admission.OpenAt(want.ChannelID); ok && !want.Member {
		return rev
	}
	return noRev
}

// requireRev records that the log has an entry of an access revision. The live subscriptions whose
// subjects were checked at an earlier one go back to replay. The caller holds topic.mu.
func (t *topic) requireRev(rev int64) {
	if rev <= t.rev {
		return
	}
	t.rev = rev
	for i := 0; i < len(t.live); {
		u := t.live[i]
		if u.admitted >= rev {
			i++
			continue
		}
		t.removeLive(u) // moves another to index i
		u.stream.catchUp(u)
	}
}

// dropAdmissions makes every subscription be checked again, because the log has another epoch. The
// caller holds topic.mu.
func (t *topic) dropAdmissions() {
	for _, u := range t.subs {
		if u.admitted != alwaysAdmitted {
			u.admitted = noRev
		}
	}
}

// admit checks the subjects of the topic's subscriptions that are not admitted at the log's access
// revision, at most maxAdmissions subjects of each right. It removes the channel from the streams
// of those that may not read it. Concurrent calls share one check. A subscription that was added
// during it may still be unchecked afterwards.
func (t *topic) admit() error {
	_, err, _ := t.hub.admissions.Do(t.channelID, func() (any, error) {
		ctx, cancel := context.WithTimeout(t.hub.ctx, t.hub.cfg.LogTimeout)
		defer cancel()
		return nil, errors.Join(t.admitSome(ctx, byChannel), t.admitSome(ctx, byMembership), t.admitSome(ctx, exempt))
	})
	if err != nil {
		return fmt.Errorf("check the subscribers: %w", err)
	}
	return nil
}

// right is how a subscriber may have a channel.
type right uint8

const (
	byChannel right = iota
	byMembership
	exempt
)

func (p *Position) right() right {
	switch {
	case p.Exempt:
		return exempt
	case p.Member:
		return byMembership
	default:
		return byChannel
	}
}

// admitSome is admit for the subscriptions with one right.
func (t *topic) admitSome(ctx context.Context, how right) error {
	subs, subjects, rev := t.unadmitted(how)
	if len(subs) == 0 {
		return nil
	}
	if how == exempt {
		subjects = nil // for them the channel need only exist
	}
	readers, at, err := t.hub.cfg.Admission.Readers(ctx, t.channelID, subjects, how == byMembership, rev)
	reason := LostNotMember
	if f, ok := fault.As(err); ok && f.Reason == fault.ChannelNotFound {
		err, reason, how = nil, LostDeleted, byChannel
	}
	if err != nil {
		return err
	}
	var strangers []*subscription
	t.mu.Lock()
	for _, u := range subs {
		if how == exempt || readers[u.stream.core.Subject] {
			u.admitted = max(u.admitted, at)
		} else {
			strangers = append(strangers, u)
		}
	}
	t.mu.Unlock()
	for _, u := range strangers {
		u.stream.expelOne(u, t.hub.enc.Lost(t.channelID, reason))
	}
	return nil
}

// unadmitted returns the subscriptions with a right that are not admitted at the topic's access
// revision, of at most maxAdmissions subjects, these subjects and the revision.
func (t *topic) unadmitted(how right) (subs []*subscription, subjects []string, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := make(map[string]bool)
	for _, u := range t.subs {
		subject := u.stream.core.Subject
		if u.admitted >= t.rev || u.want.right() != how || !seen[subject] && len(subjects) == maxAdmissions {
			continue
		}
		subs = append(subs, u)
		if !seen[subject] {
			seen[subject] = true
			subjects = append(subjects, subject)
		}
	}
	return subs, subjects, t.rev
}
