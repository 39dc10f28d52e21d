package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
)

// CreateGroup makes a consumer group. Over an existing one it is GROUP_EXISTS, and changes nothing, but for partitions that
// lack it because its making was broken off: they get it.
func (a *Admin) CreateGroup(ctx context.Context, topic string, g Group) error {
	if !validName(g.Name) {
		return fault.Invalid("group", 64, "group: must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	exists := false
	_, err := a.alter(ctx, topic, func(t *Topic) (bool, error) {
		if exists = t.hasGroup(g.Name); exists {
			return false, nil
		}
		if len(t.Groups) >= MaxGroups {
			return false, fault.OverLimit(MaxGroups, "a topic has at most %d consumer groups")
		}
		t.Groups = append(t.Groups, g)
		slices.SortFunc(t.Groups, func(x, y Group) int { return strings.Compare(x.Name, y.Name) })
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := a.settleGroup(ctx, topic, g.Name); err != nil {
		return err
	}
	if exists {
		f := fault.New(fault.AlreadyExists, fault.GroupExists, "the topic has a consumer group of this name already")
		f.Field = "group"
		return f
	}
	return nil
}

// DeleteGroup removes a consumer group with all that waits in it for a retry; its dead letters stay. confirm must be its name;
// else it is CONFIRMATION_REQUIRED. Where there is none it is GROUP_NOT_FOUND, and what is left of one that was not
// removed to the end goes.
func (a *Admin) DeleteGroup(ctx context.Context, topic, group, confirm string) error {
	if err := confirmed(confirm, group, "group"); err != nil {
		return err
	}
	missing := false
	_, err := a.alter(ctx, topic, func(t *Topic) (bool, error) {
		missing = !t.hasGroup(group)
		t.Groups = slices.DeleteFunc(t.Groups, func(g Group) bool { return g.Name == group })
		return !missing, nil
	})
	if err != nil {
		return err
	}
	if err := a.settleGroup(ctx, topic, group); err != nil {
		return err
	}
	if missing {
		return noGroup()
	}
	return nil
}

// settleGroup has every partition have the group if the topic's settings do, and else not. When others make and remove it, or
// add partitions, at the same time, whoever is last brings the partitions in line.
func (a *Admin) settleGroup(ctx context.Context, topic, group string) error {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return err
	}
	for range maxTries {
		at := slices.IndexFunc(t.Groups, func(g Group) bool { return g.Name == group })
		err := each(ctx, t.Partitions, func(ctx context.Context, p int) error {
			if at < 0 {
				return a.cfg.Store.RemoveGroup(ctx, t.Ref(p), group)
			}
			return a.cfg.Store.MakeGroup(ctx, t.Ref(p), t.Groups[at])
		})
		if err != nil {
			return undone(err)
		}
		latest, err := a.Topic(ctx, topic)
		if err != nil {
			return err
		}
		if latest.UID == t.UID && latest.Version == t.Version {
			return nil
		}
		t = latest
	}
	return contended()
}

// SeekGroup moves a consumer group to g.Start, where it begins anew: what it has pending, parked or for a retry is dropped, and
// counted as skipped. While a consumer is connected it is GROUP_IN_USE.
func (a *Admin) SeekGroup(ctx context.Context, topic string, g Group) error {
	t, err := a.group(ctx, topic, g.Name)
	if err != nil {
		return err
	}
	inUse := fault.New(fault.FailedPrecondition, fault.GroupInUse, "the group has consumers that are connected")
	inUse.Field = "group"
	// All are looked at before the first is touched. A consumer who comes in between has the rest refused: then the call may
	// be repeated once he has gone.
	leases, members, err := a.holders(ctx, t, g.Name)
	if err != nil {
		return err
	}
	if len(members) > 0 || slices.ContainsFunc(leases, func(l Lease) bool { return l.Holder != "" }) {
		return inUse
	}
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) error {
		err := a.cfg.Store.SeekGroup(ctx, t.Ref(p), g)
		if errors.Is(err, ErrNoGroup) { // its making was broken off
			err = a.cfg.Store.MakeGroup(ctx, t.Ref(p), g)
		}
		return err
	})
	if errors.Is(err, ErrInUse) {
		return inUse
	}
	if err != nil {
		return undone(err)
	}
	a.ready(t)
	return nil
}

// lookTTL is what a look at the members tells that nobody lives for.
const lookTTL = time.Second

// holders gives who has which partition of the group, and the group's members.
func (a *Admin) holders(ctx context.Context, t *Topic, group string) (leases []Lease, members []Member, err error) {
	looks, ctx := errgroup.WithContext(ctx)
	looks.Go(func() (err error) {
		leases, err = a.cfg.Store.Leases(ctx, t, group)
		return err
	})
	looks.Go(func() (err error) {
		members, err = a.cfg.Store.Beat(ctx, t.Name, group, nil, lookTTL)
		return err
	})
	if err := looks.Wait(); err != nil {
		return nil, nil, lookFault(err)
	}
	return leases, members, nil
}

// lookFault is the fault of a look that failed.
func lookFault(err error) error {
	switch {
	case errors.Is(err, ErrNoTopic):
		return noTopic()
	case errors.Is(err, ErrNoGroup):
		return noGroup()
	}
	return unread(err)
}
