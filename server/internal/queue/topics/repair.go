package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// RepairTopic creates again what the store lost of a topic, as far as another part of the store has
// a copy, and completes changes that were broken off. It returns the topic, and what it did in
// words, one sentence each; none if nothing was missing.
func (a *Admin) RepairTopic(ctx context.Context, name string) (*qlog.Topic, []string, error) {
	if err := checkName("topic", name); err != nil {
		return nil, nil, err
	}
	defer a.cfg.Catalog.Forget(name)
	found, err := a.inspectSettings(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	t, err := a.Topic(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	partitions := make([][]string, t.Partitions)
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) (err error) {
		partitions[p], err = a.inspect(ctx, t, p)
		return err
	})
	if err != nil {
		return nil, nil, writeFault(err)
	}
	if err := a.steps.align(ctx, t); err != nil {
		return nil, nil, writeFault(err)
	}
	return t, append(found, slices.Concat(partitions...)...), nil
}

// inspectSettings says in words what is missing of a topic beside its partitions. Reading it
// completes it: see Topic of qlog.TopicStore, and steps.find.
func (a *Admin) inspectSettings(ctx context.Context, name string) ([]string, error) {
	names, err := a.cfg.Store.TopicNames(ctx)
	if err != nil {
		return nil, readFault(err)
	}
	t, err := a.cfg.Store.Topic(ctx, name)
	switch {
	case errors.Is(err, qlog.ErrNoTopic):
		return []string{"the settings of the topic were lost"}, nil
	case err != nil:
		return nil, readFault(err)
	}
	var found []string
	if _, registered := slices.BinarySearch(names, name); !registered && t.State != qlog.Removing {
		found = append(found, "the registry of topics lacked the topic")
	}
	if t.State == qlog.Making {
		found = append(found, "the creation of the topic was not complete")
	}
	return found, nil
}

// inspect says in words what a partition lacks or has too much. What is there of an earlier topic
// it removes.
func (a *Admin) inspect(ctx context.Context, t *qlog.Topic, p int) (found []string, err error) {
	there, err := a.cfg.Store.Partition(ctx, t.Name, p)
	if err != nil {
		return nil, err
	}
	add := func(format string, args ...any) {
		found = append(found, fmt.Sprintf("partition %d ", p)+fmt.Sprintf(format, args...))
	}
	switch {
	case there.UID == "":
		add("was missing")
		return found, nil
	case there.UID != t.UID && there.CreatedAt.Before(t.CreatedAt):
		add("was that of an earlier topic of the name")
		return found, a.steps.clear(ctx, t, p)
	case there.UID != t.UID:
		return nil, foreign(t, qlog.ErrNoTopic)
	case there.Version > t.Version:
		add("had later settings (version %d) than the topic (version %d)", there.Version, t.Version)
	case there.Version < t.Version:
		add("had earlier settings (version %d) than the topic (version %d)", there.Version, t.Version)
	default:
	}
	for i := range t.Groups {
		name := t.Groups[i].Name
		switch {
		case !slices.Contains(there.Groups, name):
			add("lacked the group %s", name)
		case slices.Contains(there.Lost, name):
			add("had lost the state of the group %s", name)
		default:
		}
	}
	for _, name := range there.Groups {
		if t.Group(name) == nil {
			add("had the group %s, which was deleted", name)
		}
	}
	return found, nil
}
