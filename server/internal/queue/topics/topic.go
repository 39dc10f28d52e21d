package topics

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// abandoned is the age from which on a topic that is still being made counts as broken off, if
	// another one is to be created in its place.
	abandoned = 10 * time.Second
	// makingWait bounds the wait for a topic that another caller creates.
	makingWait = time.Second
	// uidLength is how many characters of A-Z and 2-7 a UID has: 65 random bits.
	uidLength = 13
)

// CreateTopic creates a topic and returns it. Zero settings get their defaults. UID, Version,
// State, CreatedAt, ProducePaused and the groups are not the caller's to set. It fails with
// TOPIC_EXISTS, and changes nothing, if there is a topic of the name. If several callers create the
// same topic at a time, one succeeds, and the others fail when it can be used. A creation that was
// broken off is completed if it had the same settings; with others it is undone after 10 s.
func (a *Admin) CreateTopic(ctx context.Context, t qlog.Topic) (*qlog.Topic, error) {
	t = qlog.Topic{
		Name: t.Name, Partitions: t.Partitions, Partitioner: t.Partitioner, Bounds: t.Bounds, DeadLetterAge: t.DeadLetterAge,
		MaxDeadLetters: t.MaxDeadLetters, UID: crand.Text()[:uidLength], Version: 1, State: qlog.Making,
	}
	if err := checkName("topic.name", t.Name); err != nil {
		return nil, err
	}
	complete(&t)
	if err := check(&t); err != nil {
		return nil, err
	}
	defer a.cfg.Catalog.Forget(t.Name)
	for range maxTries {
		made, err := a.create(ctx, &t)
		switch {
		case made != nil:
			return made, nil
		case errors.Is(err, errOvertaken):
			// Either it is Live after this, or its maker is dead, and the next try completes it.
			err = a.awaitMade(ctx, t.Name)
		case err == nil:
			err = wait(ctx)
		}
		if err != nil {
			return nil, writeFault(err)
		}
	}
	return nil, contended()
}

// create tries to create a topic. It returns neither the topic nor an error if what was in the way
// is gone, and errOvertaken if another caller makes the topic.
func (a *Admin) create(ctx context.Context, t *qlog.Topic) (*qlog.Topic, error) {
	t.CreatedAt = now()
	var existing *qlog.Topic
	// If the settings were lost and a topic of the name is registered, it is that one.
	_, err := a.steps.settings(ctx, t.Name)
	if err != nil && !errors.Is(err, qlog.ErrNoTopic) {
		return nil, readFault(err)
	}
	err = a.steps.write(ctx, func(ctx context.Context) (err error) {
		existing, err = a.cfg.Store.InsertTopic(ctx, t)
		return err
	})
	switch {
	case err == nil:
		return a.steps.finish(ctx, t)
	case errors.Is(err, qlog.ErrNoTopic): // it was deleted while it was read
		return nil, nil //nolint:nilnil // see above
	case !errors.Is(err, qlog.ErrTopicExists):
		return nil, err
	case existing.UID == t.UID && existing.CreatedAt.Equal(t.CreatedAt) && existing.State == qlog.Making:
		// The first write was made, but had no answer.
		return a.steps.finish(ctx, existing)
	case existing.UID == t.UID && existing.CreatedAt.Equal(t.CreatedAt) && existing.State == qlog.Live:
		return existing, nil // and somebody who found it completed it
	default:
		return a.displace(ctx, existing, t)
	}
}

// displace deals with a topic that is where another one is to be created: see create. TOPIC_EXISTS
// if it stays.
func (a *Admin) displace(ctx context.Context, existing, wanted *qlog.Topic) (*qlog.Topic, error) {
	next := clone(existing)
	same := sameSettings(existing, wanted)
	switch {
	case existing.State == qlog.Live:
		return nil, topicExists()
	case existing.State == qlog.Removing:
		return nil, a.steps.remove(ctx, existing)
	case same:
		// After this write all others that make the topic are overtaken, so that only one caller
		// created it. The store takes an equal write for a repeat, so the writes of two callers
		// must differ; until the topic is Live the time has no other meaning.
		next.CreatedAt = now().Add(-rand.N(abandoned / 2).Truncate(time.Millisecond))
	case time.Since(existing.CreatedAt) < abandoned:
		if err := a.awaitMade(ctx, wanted.Name); err != nil {
			return nil, err
		}
		return nil, topicExists()
	default:
		next.State = qlog.Removing
	}
	err := a.steps.write(ctx, func(ctx context.Context) error { return a.cfg.Store.UpdateTopic(ctx, next) })
	next.Version++
	switch {
	case errors.Is(err, qlog.ErrConflict) && same:
		return nil, errOvertaken
	case errors.Is(err, qlog.ErrConflict), errors.Is(err, qlog.ErrNoTopic):
		return nil, nil //nolint:nilnil // see create
	case err != nil:
		return nil, err
	case same:
		return a.steps.finish(ctx, next)
	default:
		return nil, a.steps.remove(ctx, next)
	}
}

// awaitMade waits for a while until nobody is making the topic.
func (a *Admin) awaitMade(ctx context.Context, name string) error {
	for until := time.Now().Add(makingWait); time.Now().Before(until); {
		t, err := a.cfg.Store.Topic(ctx, name)
		switch {
		case errors.Is(err, qlog.ErrNoTopic):
			return nil
		case err != nil:
			return readFault(err)
		case t.State != qlog.Making:
			return nil
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// UpdateTopic has fn change a copy of the topic's settings, and returns what was stored. Every node
// applies it within two seconds. Settings that fn sets to zero get their defaults. fn may be called
// several times, with newer settings; its error is returned as it is. The partitioner cannot be
// changed. Partitions can only be added, and not with the partitioner Hash. Changes of anything
// that CreateTopic does not take are ignored.
func (a *Admin) UpdateTopic(ctx context.Context, name string, fn func(t *qlog.Topic) error) (*qlog.Topic, error) {
	return a.alter(ctx, name, func(t *qlog.Topic) (change, error) {
		was := clone(t)
		if err := fn(t); err != nil {
			return nil, err
		}
		kept := clone(was)
		kept.Partitions, kept.Partitioner, kept.Bounds = t.Partitions, t.Partitioner, t.Bounds
		kept.DeadLetterAge, kept.MaxDeadLetters = t.DeadLetterAge, t.MaxDeadLetters
		*t = *kept
		complete(t)
		if err := checkChange(was, t); err != nil {
			return nil, err
		}
		if sameSettings(was, t) {
			return nil, nil // there is nothing to change
		}
		return func(ctx context.Context) error {
			if t.Partitions > was.Partitions {
				if err := a.grow(ctx, t, was.Partitions); err != nil {
					return err
				}
			}
			return a.cfg.Store.UpdateTopic(ctx, t)
		}, nil
	})
}

// grow makes the partitions that the next version of a topic's settings adds, before they are
// stored. Its groups begin at the start of them.
func (a *Admin) grow(ctx context.Context, t *qlog.Topic, first int) error {
	next := clone(t)
	next.Version++
	return a.steps.makePartitions(ctx, next, first, t.Partitions)
}

// DeleteTopic deletes a topic with its messages and groups. It fails with CONFIRMATION_REQUIRED
// unless confirm is the topic's name, and with TOPIC_NOT_FOUND if there is none.
func (a *Admin) DeleteTopic(ctx context.Context, name, confirm string) error {
	if err := checkName("topic", name); err != nil {
		return err
	}
	if err := confirmed(confirm, name, "topic"); err != nil {
		return err
	}
	defer a.cfg.Catalog.Forget(name)
	for range maxTries {
		t, err := a.steps.settings(ctx, name)
		switch {
		case errors.Is(err, qlog.ErrNoTopic):
			// A registration without settings, of which no partition has a copy, goes too.
			if err := a.cfg.Store.RemoveTopic(ctx, &qlog.Topic{Name: name}); err != nil {
				return writeFault(err)
			}
			return noTopic()
		case err != nil:
			return readFault(err)
		}
		if t.State != qlog.Removing {
			t.State = qlog.Removing
			err := a.steps.write(ctx, func(ctx context.Context) error { return a.cfg.Store.UpdateTopic(ctx, t) })
			if errors.Is(err, qlog.ErrConflict) || errors.Is(err, qlog.ErrNoTopic) {
				if err := wait(ctx); err != nil {
					return writeFault(err)
				}
				continue
			}
			if err != nil {
				return writeFault(err)
			}
			t.Version++
		}
		if err := a.steps.remove(ctx, t); err != nil {
			return writeFault(err)
		}
		return nil
	}
	return contended()
}

// SetTopicPaused pauses or resumes Produce for a topic, and returns the topic.
func (a *Admin) SetTopicPaused(ctx context.Context, name string, paused bool) (*qlog.Topic, error) {
	return a.alter(ctx, name, func(t *qlog.Topic) (change, error) {
		if t.ProducePaused == paused {
			return nil, nil // there is nothing to change
		}
		t.ProducePaused = paused
		return func(ctx context.Context) error { return a.cfg.Store.UpdateTopic(ctx, t) }, nil
	})
}

// now returns the time as settings keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
