package topics

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// CreateGroup creates a consumer group of a topic and returns it. Zero settings get their defaults;
// Paused is not the caller's to set. It fails with GROUP_EXISTS if the topic has a group of the
// name.
func (a *Admin) CreateGroup(ctx context.Context, topic string, g qlog.Group) (*qlog.Group, error) {
	g = *cloneGroup(&g)
	g.Paused = false
	completeGroup(&g)
	if err := checkGroup(&g); err != nil {
		return nil, err
	}
	exists := false
	t, err := a.alter(ctx, topic, func(t *qlog.Topic) (change, error) {
		if exists = t.Group(g.Name) != nil; exists {
			return nil, nil //nolint:nilnil // there is nothing to change
		}
		if len(t.Groups) >= MaxGroups {
			return nil, tooManyGroups()
		}
		before := clone(t)
		t.Groups = append(t.Groups, g)
		slices.SortFunc(t.Groups, func(x, y qlog.Group) int { return strings.Compare(x.Name, y.Name) })
		return func(ctx context.Context) error {
			// A group of the name whose deletion was broken off goes first, or the new one would
			// continue where it was.
			if err := a.steps.align(ctx, before); err != nil {
				return err
			}
			return a.cfg.Store.PutGroup(ctx, t, g)
		}, nil
	})
	switch {
	case err != nil:
		return nil, err
	case exists:
		return nil, groupExists()
	default:
		return t.Group(g.Name), nil
	}
}

// UpdateGroup has fn change a copy of a group's settings, and returns what was stored. Every node
// applies it within two seconds. Settings that fn sets to zero get their defaults. fn may be called
// several times, with newer settings; its error is returned as it is. Changes of the name, the
// mode, the start and Paused are ignored.
func (a *Admin) UpdateGroup(ctx context.Context, topic, name string, fn func(g *qlog.Group) error) (*qlog.Group, error) {
	return a.alterGroup(ctx, topic, name, func(g *qlog.Group) error {
		was := cloneGroup(g)
		if err := fn(g); err != nil {
			return err
		}
		g.Name, g.Mode, g.Start, g.Paused = was.Name, was.Mode, was.Start, was.Paused
		completeGroup(g)
		return checkGroup(g)
	})
}

// SetGroupPaused pauses or resumes the deliveries to a group, and returns the group.
func (a *Admin) SetGroupPaused(ctx context.Context, topic, name string, paused bool) (*qlog.Group, error) {
	return a.alterGroup(ctx, topic, name, func(g *qlog.Group) error {
		g.Paused = paused
		return nil
	})
}

// DeleteGroup deletes a consumer group with its deliveries and retries; its dead letters are kept.
// The holders of its leases find out by their next commit. It fails with CONFIRMATION_REQUIRED
// unless confirm is the group's name, and with GROUP_NOT_FOUND if there is none; then it removes
// what is left of one whose deletion was broken off.
func (a *Admin) DeleteGroup(ctx context.Context, topic, name, confirm string) error {
	if err := confirmed(confirm, name, "group"); err != nil {
		return err
	}
	exists := false
	_, err := a.alter(ctx, topic, func(t *qlog.Topic) (change, error) {
		if exists = t.Group(name) != nil; !exists {
			return nil, nil //nolint:nilnil // there is nothing to change
		}
		before := clone(t)
		t.Groups = slices.DeleteFunc(t.Groups, func(g qlog.Group) bool { return g.Name == name })
		return func(ctx context.Context) error {
			// A partition that lost its settings must know that it has the group, to remove it.
			if err := a.steps.align(ctx, before); err != nil {
				return err
			}
			return a.cfg.Store.DeleteGroup(ctx, t, name)
		}, nil
	})
	if err == nil && !exists {
		return noGroup()
	}
	return err
}

// SeekGroup moves a consumer group to another place of the topic and forgets its deliveries and
// retries. The partitions are moved one after another. The holder of a partition's lease loses it:
// its next commit fails, and the next holder reads from the new place on. A repeat moves the group
// again.
func (a *Admin) SeekGroup(ctx context.Context, topic, name string, start qlog.Start) error {
	if err := checkStart("start.time", start); err != nil {
		return err
	}
	start = completeStart(start)
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return err
	}
	if t.Group(name) == nil {
		return noGroup()
	}
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) error {
		return a.seek(ctx, t, qlog.GroupRef{Ref: t.Ref(p), Group: name}, start)
	})
	if err != nil {
		return writeFault(err)
	}
	return nil
}

// nobody is the holder of a lease that is taken for a seek. No node has such a name. So if the seek
// ends between its two steps, any node may take the lease over as that of a dead node, which keeps in
// doubt what sessions hold. A lease without a holder would say that they hold nothing.
const nobody = "(seek)"

// seek moves a group in one partition: it takes the lease from its holder, and then moves the group
// under the epoch of that lease.
func (a *Admin) seek(ctx context.Context, t *qlog.Topic, ref qlog.GroupRef, start qlog.Start) error {
	for range maxTries {
		_, epoch, err := a.cfg.Leases.Lease(ctx, ref)
		var state qlog.State
		if err == nil {
			state, err = a.cfg.Leases.Acquire(ctx, ref, nobody, epoch)
		}
		if err == nil {
			err = a.cfg.Store.SeekGroup(ctx, ref, state.Epoch, start)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, qlog.ErrNoTopic), errors.Is(err, qlog.ErrNoGroup):
			if err := a.healGroup(ctx, t, ref); err != nil {
				return err
			}
		case errors.Is(err, qlog.ErrHeld), errors.Is(err, qlog.ErrFenced), errors.Is(err, qlog.ErrUnknownOutcome):
			// Another node acquired the lease in between, or this call did.
		default:
			return err
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return contended()
}

// healGroup brings a partition that lacks a group in line with the topic's settings, if they have
// it.
func (a *Admin) healGroup(ctx context.Context, t *qlog.Topic, ref qlog.GroupRef) error {
	now, err := a.Topic(ctx, t.Name)
	switch {
	case err != nil:
		return err
	case now.UID != t.UID:
		return noTopic()
	case now.Group(ref.Group) == nil:
		return noGroup()
	default:
		return a.steps.heal(ctx, now, ref.Partition)
	}
}
