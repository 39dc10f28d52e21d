package topics

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxCalls bounds the partitions, or topics, that one call works on at a time.
	maxCalls = 8
	// maxTries bounds how often a change is tried again because another one was made meanwhile.
	maxTries = 20
	// conflictWait is the mean wait before that.
	conflictWait = 5 * time.Millisecond
	// maxBehind bounds by how many versions settings that the store rolled back are moved forward.
	maxBehind = 1000
	// repeats is how often a change whose outcome is unknown is repeated.
	repeats = 1
)

// errOvertaken says that another caller changed a topic that was being made.
var errOvertaken = errors.New("the topic was changed while it was made")

// steps are the parts of the changes that Catalog and Admin share. Every one of them may be
// repeated, and be done by several nodes at a time.
type steps struct {
	store qlog.TopicStore
	log   *slog.Logger
}

// find returns a topic that is Live. It restores settings that were lost, and completes a creation
// or a deletion that is not complete. Its error is ErrNoTopic, errOvertaken or one of the store.
func (s *steps) find(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.settings(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case t.State == qlog.Making:
		return s.finish(ctx, t)
	case t.State == qlog.Removing:
		if err := s.remove(ctx, t); err != nil {
			s.log.WarnContext(ctx, "the deletion of a topic cannot be completed", "topic", name, "error", err)
		}
		return nil, qlog.ErrNoTopic
	default:
		return t, nil
	}
}

// settings returns a topic in any state, and restores settings that were lost.
func (s *steps) settings(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.store.Topic(ctx, name)
	if errors.Is(err, qlog.ErrNoTopic) {
		err = s.write(ctx, func(ctx context.Context) (err error) { t, err = s.store.RestoreTopic(ctx, name); return err })
	}
	return t, err
}

// finish makes the partitions of a topic in the state Making, and then lets it be Live, with the
// next version. Everybody who does that for the same version does the same. errOvertaken if the
// topic was changed.
func (s *steps) finish(ctx context.Context, t *qlog.Topic) (*qlog.Topic, error) {
	next := clone(t)
	next.State = qlog.Live
	live := clone(next)
	live.Version++
	err := s.makePartitions(ctx, live, 0, live.Partitions)
	if err == nil {
		err = s.write(ctx, func(ctx context.Context) error { return s.store.UpdateTopic(ctx, next) })
	}
	if errors.Is(err, qlog.ErrConflict) || errors.Is(err, qlog.ErrNoTopic) {
		return nil, errOvertaken
	}
	if err != nil {
		return nil, err
	}
	return live, nil
}

// remove deletes a topic in the state Removing.
func (s *steps) remove(ctx context.Context, t *qlog.Topic) error {
	// More partitions than the settings have may be left of an update that was broken off.
	err := each(ctx, t.Partitions, func(ctx context.Context, p int) error { return s.mark(ctx, t, p) })
	if err == nil {
		err = s.removePartitions(ctx, t, MaxPartitions)
	}
	if err != nil {
		return err
	}
	return s.write(ctx, func(ctx context.Context) error { return s.store.RemoveTopic(ctx, t) })
}

// mark makes a partition that lost its settings known as the topic's again, so that what it has left
// can be removed.
func (s *steps) mark(ctx context.Context, t *qlog.Topic, partition int) error {
	there, err := s.store.Partition(ctx, t.Name, partition)
	if err != nil || there.UID != "" {
		return err
	}
	return s.makePartition(ctx, t, partition)
}

// makePartitions makes partitions that are new, and removes what is there in their place of an
// earlier topic of the name.
func (s *steps) makePartitions(ctx context.Context, t *qlog.Topic, from, to int) error {
	return each(ctx, to-from, func(ctx context.Context, i int) error {
		err := s.makePartition(ctx, t, from+i)
		if !errors.Is(err, qlog.ErrNoTopic) {
			return err
		}
		if err := s.clear(ctx, t, from+i); err != nil {
			return err
		}
		return s.makePartition(ctx, t, from+i)
	})
}

// makePartition brings one partition in line with t.
func (s *steps) makePartition(ctx context.Context, t *qlog.Topic, partition int) error {
	return s.write(ctx, func(ctx context.Context) error { return s.store.MakePartition(ctx, t, partition) })
}

// removePartitions removes the first n partitions of a topic.
func (s *steps) removePartitions(ctx context.Context, t *qlog.Topic, n int) error {
	return each(ctx, n, func(ctx context.Context, p int) error {
		return s.write(ctx, func(ctx context.Context) error { return s.store.RemovePartition(ctx, t, p) })
	})
}

// clear removes a partition that is left of an earlier topic of the name. A call for that topic
// that was late can have made it after the topic was deleted.
func (s *steps) clear(ctx context.Context, t *qlog.Topic, partition int) error {
	there, err := s.store.Partition(ctx, t.Name, partition)
	if err != nil || there.UID == "" || there.UID == t.UID {
		return err
	}
	// No topic gets the UID of an earlier one. So if the settings are those of t now, after the
	// partition was seen, the topic that it is of was deleted.
	now, err := s.store.Topic(ctx, t.Name)
	if err != nil {
		return err
	}
	if now.UID != t.UID {
		return qlog.ErrNoTopic
	}
	s.log.WarnContext(ctx, "a partition is left of an earlier topic and is removed",
		"topic", t.Name, "partition", partition, "uid", there.UID)
	return s.write(ctx, func(ctx context.Context) error {
		return s.store.RemovePartition(ctx, &qlog.Topic{Name: t.Name, UID: there.UID}, partition)
	})
}

// align brings all partitions in line with the settings t, which were the topic's a moment ago, or
// with later ones. The caller that stored later ones aligns the partitions with those. ErrNoTopic
// if the topic was deleted meanwhile.
func (s *steps) align(ctx context.Context, t *qlog.Topic) error {
	for range maxTries {
		err := each(ctx, t.Partitions, func(ctx context.Context, p int) error { return s.makePartition(ctx, t, p) })
		if err != nil && !errors.Is(err, qlog.ErrConflict) && !errors.Is(err, qlog.ErrNoTopic) {
			return err
		}
		now, readErr := s.settings(ctx, t.Name)
		switch {
		case readErr != nil:
			return readErr
		case now.UID != t.UID || now.State == qlog.Removing:
			// The deletion may have passed the partitions that were made just now.
			return errors.Join(qlog.ErrNoTopic, s.removePartitions(ctx, t, t.Partitions))
		case err == nil:
			return nil
		case now.Version != t.Version:
			t = now
		case errors.Is(err, qlog.ErrConflict):
			if t, err = s.forward(ctx, now); err != nil {
				return err
			}
		default:
			return foreign(t, err)
		}
	}
	return contended()
}

// forward raises the version of settings that are earlier than those that the partitions have: the
// store lost the later ones. It returns the settings with a version that no partition is ahead of.
func (s *steps) forward(ctx context.Context, t *qlog.Topic) (*qlog.Topic, error) {
	latest := t.Version
	for p := range t.Partitions {
		there, err := s.store.Partition(ctx, t.Name, p)
		if err != nil {
			return nil, err
		}
		if there.UID == t.UID {
			latest = max(latest, there.Version)
		}
	}
	s.log.WarnContext(ctx, "the settings of a topic are behind those of its partitions",
		"topic", t.Name, "version", t.Version, "partitions", latest)
	if latest-t.Version > maxBehind {
		return nil, fault.New(fault.Unavailable, fault.StoreUnavailable,
			"the settings of the topic are %d versions behind those of a partition", latest-t.Version)
	}
	t = clone(t)
	for ; t.Version <= latest; t.Version++ {
		err := s.write(ctx, func(ctx context.Context) error { return s.store.UpdateTopic(ctx, t) })
		if errors.Is(err, qlog.ErrConflict) {
			return s.settings(ctx, t.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// heal brings one partition in line with the settings t, which were just read.
func (s *steps) heal(ctx context.Context, t *qlog.Topic, partition int) error {
	err := s.makePartition(ctx, t, partition)
	switch {
	case errors.Is(err, qlog.ErrConflict):
		return s.align(ctx, t)
	case errors.Is(err, qlog.ErrNoTopic):
		return foreign(t, err)
	default:
		return err
	}
}

// foreign returns the fault of a partition that another topic of the name has.
func foreign(t *qlog.Topic, err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "a partition of topic %s is that of another topic", t.Name)
}

// write calls fn, which changes something, and repeats it if its outcome is unknown.
func (s *steps) write(ctx context.Context, fn func(ctx context.Context) error) error {
	err := fn(ctx)
	for range repeats {
		if !errors.Is(err, qlog.ErrUnknownOutcome) || ctx.Err() != nil {
			break
		}
		err = fn(ctx)
	}
	return err
}

// wait waits before a change is tried again.
func wait(ctx context.Context) error { return lifecycle.Pause(ctx, rand.N(2*conflictWait)) }

// each calls fn with 0 to n-1, some at a time. It returns the first error, which ends the rest.
func each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(maxCalls)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() error { return fn(ctx, i) })
	}
	return calls.Wait()
}
