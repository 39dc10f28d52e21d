package topics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sort"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Leases are the leases of groups, which SeekGroup takes from their holders; see qlog.Store.
type Leases interface {
	Lease(ctx context.Context, ref qlog.GroupRef) (holder string, epoch int64, err error)
	Acquire(ctx context.Context, ref qlog.GroupRef, node string, expected int64) (qlog.State, error)
}

// AdminConfig configures an Admin. Store, Leases and Catalog are required.
type AdminConfig struct {
	Store   qlog.TopicStore
	Leases  Leases
	Catalog *Catalog
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Admin creates, changes, lists and deletes topics and consumer groups. All its errors that a
// client may see are faults. Safe for concurrent use, on any number of nodes at once.
//
// A change that touches several partitions is not atomic. It can be repeated: the repeat completes
// what was broken off. After OUTCOME_UNKNOWN, CreateTopic and CreateGroup may fail with
// TOPIC_EXISTS and GROUP_EXISTS because the first call created it.
type Admin struct {
	cfg   AdminConfig
	steps steps
}

// NewAdmin creates an Admin.
func NewAdmin(c AdminConfig) *Admin {
	return &Admin{cfg: c, steps: steps{store: c.Store, log: cmp.Or(c.Logger, slog.Default())}}
}

// Topic returns a topic as the store has it. TOPIC_NOT_FOUND unless it is Live.
func (a *Admin) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	if err := checkName("topic", name); err != nil {
		return nil, err
	}
	for range maxTries {
		t, err := a.steps.find(ctx, name)
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, errOvertaken):
			return nil, readFault(err)
		}
		if err := wait(ctx); err != nil {
			return nil, readFault(err)
		}
	}
	return nil, contended()
}

// Topics returns up to n topics ordered by their names, those after a name. more reports whether
// there are more. The server's own topics, whose names begin with two underscores, are left out.
func (a *Admin) Topics(ctx context.Context, after string, n int) (topics []*qlog.Topic, more bool, err error) {
	names, err := a.cfg.Store.TopicNames(ctx)
	if err != nil {
		return nil, false, readFault(err)
	}
	names = names[sort.Search(len(names), func(i int) bool { return names[i] > after }):]
	for len(names) > 0 {
		// Topics that are not Live are left out, so it may take more reads than there is room for
		// topics.
		some := names[:min(len(names), n+1-len(topics))]
		names = names[len(some):]
		found := make([]*qlog.Topic, len(some))
		err := each(ctx, len(some), func(ctx context.Context, i int) error {
			if !managed(some[i]) {
				return nil
			}
			t, err := a.steps.find(ctx, some[i])
			if errors.Is(err, qlog.ErrNoTopic) || errors.Is(err, errOvertaken) {
				return nil
			}
			found[i] = t
			return err
		})
		if err != nil {
			return nil, false, readFault(err)
		}
		topics = append(topics, slices.DeleteFunc(found, func(t *qlog.Topic) bool { return t == nil })...)
		if len(topics) > n {
			return topics[:n], true, nil
		}
	}
	return topics, false, nil
}

// Group returns a consumer group. TOPIC_NOT_FOUND, GROUP_NOT_FOUND.
func (a *Admin) Group(ctx context.Context, topic, name string) (*qlog.Group, error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	g := t.Group(name)
	if g == nil {
		return nil, noGroup()
	}
	return g, nil
}

// change is one write of a topic's settings. It fails with ErrConflict if the topic was changed
// since it was read.
type change func(ctx context.Context) error

// alter changes a topic's settings. It reads them, and plan changes a copy and returns the write
// that stores what it changed, from the version of the copy on; nil if there is nothing to change.
// If another change was made in between, it begins again. Then the partitions are brought in line
// with the settings, also if nothing was changed. It returns the settings that were written.
func (a *Admin) alter(ctx context.Context, name string, plan func(t *qlog.Topic) (change, error)) (*qlog.Topic, error) {
	for range maxTries {
		t, err := a.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		t = clone(t)
		write, err := plan(t)
		if err != nil {
			return nil, err
		}
		if write != nil {
			err := a.steps.write(ctx, write)
			a.cfg.Catalog.Forget(name)
			// A topic whose settings were lost, or that was deleted, is found out by the next read.
			if errors.Is(err, qlog.ErrConflict) || errors.Is(err, qlog.ErrNoTopic) {
				if err := wait(ctx); err != nil {
					return nil, writeFault(err)
				}
				continue
			}
			if err != nil {
				return nil, writeFault(err)
			}
			t.Version++
		}
		if err := a.steps.align(ctx, t); err != nil {
			return nil, writeFault(err)
		}
		return t, nil
	}
	return nil, contended()
}

// alterGroup is alter for one group of the topic. GROUP_NOT_FOUND.
func (a *Admin) alterGroup(ctx context.Context, topic, name string, fn func(g *qlog.Group) error) (*qlog.Group, error) {
	t, err := a.alter(ctx, topic, func(t *qlog.Topic) (change, error) {
		g := t.Group(name)
		if g == nil {
			return nil, noGroup()
		}
		was := cloneGroup(g)
		if err := fn(g); err != nil {
			return nil, err
		}
		if sameGroup(was, g) {
			return nil, nil //nolint:nilnil // there is nothing to change
		}
		return func(ctx context.Context) error { return a.cfg.Store.PutGroup(ctx, t, *g) }, nil
	})
	if err != nil {
		return nil, err
	}
	return t.Group(name), nil
}

// sameGroup reports whether two groups have the same settings.
func sameGroup(a, b *qlog.Group) bool {
	return a.Name == b.Name && a.Mode == b.Mode && a.Order == b.Order && a.AckTimeout == b.AckTimeout && a.Timeout == b.Timeout &&
		a.MaxRunTime == b.MaxRunTime && a.ResumeGrace == b.ResumeGrace && a.Paused == b.Paused &&
		a.Start.End == b.Start.End && a.Start.Time.Equal(b.Start.Time) && a.Retry.MaxAttempts == b.Retry.MaxAttempts &&
		a.Retry.MinBackoff == b.Retry.MinBackoff && a.Retry.MaxBackoff == b.Retry.MaxBackoff &&
		slices.Equal(a.Retry.NonRetryable, b.Retry.NonRetryable)
}

// tooManyGroups is the fault of a group beyond the limit.
func tooManyGroups() error {
	return fault.OverLimit(MaxGroups, "a topic has at most %d consumer groups")
}
