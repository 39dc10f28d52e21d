package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// abandoned is how old a topic that is still being made must be for its maker to be taken for dead.
	abandoned = 10 * time.Second
	// makingWait is how long another is waited for who makes the topic at the same time.
	makingWait = time.Second
)

// errOvertaken says that another has taken the making of a topic over.
var errOvertaken = errors.New("another makes the topic")

// uidLength is how many characters of A-Z and 2-7 a UID has: 65 random bits.
const uidLength = 13

// CreateTopic makes a topic and tells it. Zero settings take their defaults; UID, Version, State, CreatedAt, the pauses and the
// groups are not the caller's to give. Over an existing topic it is TOPIC_EXISTS, and changes nothing; of several that make the same
// one at a time one succeeds, and the others are told so once it can be used. A topic whose making was broken off is finished if it
// is the same, and replaced after 10 s if it is not.
func (a *Admin) CreateTopic(ctx context.Context, t Topic) (*Topic, error) {
	t = Topic{
		Name: t.Name, Partitions: t.Partitions, Partitioner: t.Partitioner, StrictOrder: t.StrictOrder, Retry: t.Retry,
		Retention: t.Retention, MaxMessages: t.MaxMessages, DropOldest: t.DropOldest, IdempotencyWindow: t.IdempotencyWindow,
		UID: rand.Text()[:uidLength], Version: 1, State: Making,
	}
	t.setDefaults()
	if err := t.check(); err != nil {
		return nil, err
	}
	unknown := 0
	for range maxTries {
		t.CreatedAt = now()
		existing, err := a.cfg.Store.InsertTopic(ctx, t.clone())
		var done *Topic
		switch {
		case err == nil:
			done, err = a.finish(ctx, &t)
		case errors.Is(err, ErrUnknownOutcome):
			if unknown++; unknown > 1 || ctx.Err() != nil {
				return nil, undone(err)
			}
			continue // if it was stored, it is there now, with our UID
		case !errors.Is(err, ErrTopicExists):
			return nil, undone(err)
		case existing == nil: // it went while it was looked at
			continue
		case existing.UID == t.UID && existing.State == Making:
			done, err = a.finish(ctx, existing)
		default:
			done, err = a.giveWay(ctx, existing, &t)
		}
		if errors.Is(err, errOvertaken) {
			// Either it is whole after this, or whoever made it has died and it is ours to finish.
			if err := a.awaitMade(ctx, t.Name); err != nil {
				return nil, err
			}
			continue
		}
		if done != nil || err != nil {
			return done, err
		}
	}
	return nil, contended()
}

// awaitMade waits, for a while, until nobody is making the topic any more: who is told of a topic may use it.
func (a *Admin) awaitMade(ctx context.Context, name string) error {
	for until := time.Now().Add(makingWait); time.Now().Before(until); {
		t, err := a.cfg.Store.Topic(ctx, name)
		switch {
		case errors.Is(err, ErrNoTopic):
			return nil
		case err != nil:
			return unread(err)
		case t.State != Making:
			return nil
		}
		if err := lifecycle.Pause(ctx, changeWait); err != nil {
			return undone(err)
		}
	}
	return nil
}

// giveWay does what there is to do about a topic that stands where another is to be made: it gives that topic if it could be
// finished as the one that is wanted, TOPIC_EXISTS if it must stay, errOvertaken if another finishes it, and neither once it is out of
// the way.
func (a *Admin) giveWay(ctx context.Context, existing, wanted *Topic) (*Topic, error) {
	exists := fault.New(fault.AlreadyExists, fault.TopicExists, "there is a topic of this name already")
	exists.Field = "topic.name"
	next := existing.clone()
	switch {
	case existing.State == Live:
		return nil, exists
	case existing.State == Removing:
		return nil, a.remove(ctx, existing)
	case existing.sameAs(wanted):
		// Whoever else is at it finds the settings changed, so that only one of us has made the topic. What two write at the same
		// time must differ, for a store takes the same settings again for a repeat; until it is whole the time says nothing else.
		next.CreatedAt = now().Add(-jitter(abandoned / 2))
		claimed, err := a.save(ctx, next)
		if errors.Is(err, ErrConflict) {
			return nil, errOvertaken
		}
		if err != nil {
			return nil, err
		}
		return a.finish(ctx, claimed)
	case time.Since(existing.CreatedAt) < abandoned:
		if err := a.awaitMade(ctx, wanted.Name); err != nil {
			return nil, err
		}
		return nil, exists
	}
	next.State = Removing
	removing, err := a.save(ctx, next)
	if errors.Is(err, ErrConflict) {
		return nil, nil //nolint:nilnil // look again
	}
	if err != nil {
		return nil, err
	}
	return nil, a.remove(ctx, removing)
}

// finish makes the partitions of a topic and then declares it whole; errOvertaken if another has begun to do that.
func (a *Admin) finish(ctx context.Context, t *Topic) (*Topic, error) {
	if err := a.makePartitions(ctx, t, 0, t.Partitions); err != nil {
		return nil, undone(err)
	}
	next := t.clone()
	next.State, next.CreatedAt = Live, now()
	live, err := a.save(ctx, next)
	if errors.Is(err, ErrConflict) {
		return nil, errOvertaken
	}
	return live, err
}

// remove removes a topic in the state Removing.
func (a *Admin) remove(ctx context.Context, t *Topic) error {
	n := t.Partitions
	if t.Partitioner != Hash {
		n = MaxPartitions // more may have been made by an UpdateTopic that was broken off
	}
	err := each(ctx, n, func(ctx context.Context, p int) error { return a.cfg.Store.RemovePartition(ctx, t, p) })
	if err != nil {
		return undone(err)
	}
	if err := a.cfg.Store.RemoveTopic(ctx, t.clone()); err != nil && !errors.Is(err, ErrNoTopic) {
		return undone(err)
	}
	a.cfg.Catalog.Forget(t.Name)
	return nil
}

// UpdateTopic has change alter a copy of the topic's settings, and tells what they are then; every node goes by them within
// two seconds. change may be called several times, and its error is given as it is. Partitioner and StrictOrder can't be
// changed; partitions only be added, and not with the partitioner Hash. Whatever else is not the caller's to give stays.
func (a *Admin) UpdateTopic(ctx context.Context, name string, change func(*Topic) error) (*Topic, error) {
	// before and grown are what partitions were added to last, and whether any were.
	var before *Topic
	most := 0
	t, err := a.alter(ctx, name, func(t *Topic) (bool, error) {
		was := t.clone()
		if err := change(t); err != nil {
			return false, err
		}
		t.keep(was)
		t.setDefaults()
		if err := t.checkChange(was); err != nil {
			return false, err
		}
		if t.Partitions > was.Partitions {
			// They are there before anybody can know of them.
			before, most = was, t.Partitions
			if err := a.grow(ctx, t, was.Partitions); err != nil {
				return false, undone(err)
			}
		}
		return true, nil
	})
	if before != nil {
		if tidy := a.settleGrown(ctx, before, most); err == nil {
			err = tidy
		}
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// keep sets what UpdateTopic leaves alone to what it was.
func (t *Topic) keep(was *Topic) {
	t.Name, t.UID, t.Version, t.State, t.CreatedAt = was.Name, was.UID, was.Version, was.State, was.CreatedAt
	t.ProducePaused, t.ConsumePaused, t.Groups = was.ProducePaused, was.ConsumePaused, was.clone().Groups
}

// grow makes the partitions from the first new one on, with the groups, which begin at a new partition's beginning.
func (a *Admin) grow(ctx context.Context, t *Topic, first int) error {
	if err := a.makePartitions(ctx, t, first, t.Partitions); err != nil {
		return err
	}
	return each(ctx, t.Partitions-first, func(ctx context.Context, i int) error {
		for _, g := range t.Groups {
			if err := a.cfg.Store.MakeGroup(ctx, t.Ref(first+i), Group{Name: g.Name}); err != nil {
				return err
			}
		}
		return nil
	})
}

// settleGrown makes what was added to a topic, up to partition most, agree with the topic as it is now. Meanwhile groups may
// have gone, pauses changed, or the topic been removed.
func (a *Admin) settleGrown(ctx context.Context, before *Topic, most int) error {
	err := each(ctx, most-before.Partitions, func(ctx context.Context, i int) error {
		p := before.Partitions + i
		stats, err := a.cfg.Store.Stats(ctx, before, p)
		if err != nil && !errors.Is(err, ErrNoTopic) {
			return err
		}
		// After the look: what is not in the settings now was not being made then.
		t, err := a.cfg.Store.Topic(ctx, before.Name)
		switch {
		case errors.Is(err, ErrNoTopic), err == nil && (t.UID != before.UID || t.State == Removing):
			return a.cfg.Store.RemovePartition(ctx, before, p)
		case err != nil:
			return err
		case p >= t.Partitions: // the settings were not saved
			return nil
		}
		for _, g := range stats.Groups {
			if !t.hasGroup(g.Group) {
				if err := a.cfg.Store.RemoveGroup(ctx, t.Ref(p), g.Group); err != nil {
					return err
				}
			}
		}
		return a.cfg.Store.MakePartition(ctx, t, p)
	})
	if err != nil {
		return undone(err)
	}
	return nil
}

// DeleteTopic removes a topic with everything in it. confirm must be its name; else it is CONFIRMATION_REQUIRED.
func (a *Admin) DeleteTopic(ctx context.Context, name, confirm string) error {
	if err := checkTopicName(name); err != nil {
		return err
	}
	if err := confirmed(confirm, name, "topic"); err != nil {
		return err
	}
	for range maxTries {
		t, err := a.cfg.Store.Topic(ctx, name)
		switch {
		case errors.Is(err, ErrNoTopic):
			return noTopic()
		case err != nil:
			return unread(err)
		case t.State == Removing:
			return a.remove(ctx, t)
		}
		next := t.clone()
		next.State = Removing
		removing, err := a.save(ctx, next)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return a.remove(ctx, removing)
	}
	return contended()
}

// Pause pauses operations of a topic and leaves the others as they are. While produce is paused, Produce and Schedule are
// TOPIC_PAUSED; while consume is paused, nothing is delivered. With neither it changes nothing.
func (a *Admin) Pause(ctx context.Context, name string, produce, consume bool) (*Topic, error) {
	return a.setPaused(ctx, name, func(t *Topic) {
		t.ProducePaused, t.ConsumePaused = t.ProducePaused || produce, t.ConsumePaused || consume
	})
}

// Resume resumes operations of a topic and leaves the others as they are. With neither it changes nothing.
func (a *Admin) Resume(ctx context.Context, name string, produce, consume bool) (*Topic, error) {
	t, err := a.setPaused(ctx, name, func(t *Topic) {
		t.ProducePaused, t.ConsumePaused = t.ProducePaused && !produce, t.ConsumePaused && !consume
	})
	if err == nil && consume {
		a.ready(t)
	}
	return t, err
}

// setPaused changes the pauses and has every partition go by them.
func (a *Admin) setPaused(ctx context.Context, name string, set func(*Topic)) (*Topic, error) {
	t, err := a.alter(ctx, name, func(t *Topic) (bool, error) {
		produce, consume := t.ProducePaused, t.ConsumePaused
		set(t)
		return t.ProducePaused != produce || t.ConsumePaused != consume, nil
	})
	if err != nil {
		return nil, err
	}
	for applied := t; ; {
		if err := a.makePartitions(ctx, applied, 0, applied.Partitions); err != nil {
			return nil, undone(err)
		}
		// Another may have paused, resumed or grown the topic meanwhile. Whoever is last brings the partitions in line.
		latest, err := a.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		if latest.UID == applied.UID && latest.Version == applied.Version {
			return t, nil
		}
		if err := a.dropGroups(ctx, applied, latest); err != nil {
			return nil, undone(err)
		}
		applied = latest
	}
}

// dropGroups removes groups that a topic has no more, but that partitions made by its earlier settings may have got again.
func (a *Admin) dropGroups(ctx context.Context, earlier, now *Topic) error {
	for _, g := range earlier.Groups {
		if now.hasGroup(g.Name) {
			continue
		}
		err := each(ctx, now.Partitions, func(ctx context.Context, p int) error {
			return a.cfg.Store.RemoveGroup(ctx, now.Ref(p), g.Name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makePartitions makes partitions that are absent, and has those there are go by the topic's pauses.
func (a *Admin) makePartitions(ctx context.Context, t *Topic, from, to int) error {
	return each(ctx, to-from, func(ctx context.Context, i int) error {
		return a.cfg.Store.MakePartition(ctx, t, from+i)
	})
}

// now is the time as settings keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
