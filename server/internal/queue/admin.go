package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// maxCalls is how many partitions, or topics, an admin call works on at once.
	maxCalls = 8
	// maxTries bounds how often settings are read and written anew because another changed them meanwhile.
	maxTries = 20
	// changeWait is about how long before that.
	changeWait = 5 * time.Millisecond
	// MaxGroups bounds the consumer groups of a topic.
	MaxGroups = 256
)

// AdminConfig sets up an Admin. Store and Catalog must be set.
type AdminConfig struct {
	Store   Store
	Catalog *Catalog
	// Hints tells consumers where there may be something again; nil tells nobody.
	Hints Hints
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Admin makes, alters and looks into topics. All its errors that a client may be told of are faults. Safe for concurrent use,
// on any number of nodes at once.
//
// What touches several partitions is no one step. A topic's settings say what is meant; whatever was broken off is finished
// by the same call made again, and by CreateTopic and DeleteTopic of the name. After OUTCOME_UNKNOWN every call may be
// repeated.
type Admin struct{ cfg AdminConfig }

// NewAdmin makes an Admin.
func NewAdmin(c AdminConfig) *Admin {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Admin{cfg: c}
}

// Topic gives a topic as the store has it; TOPIC_NOT_FOUND unless it is whole.
func (a *Admin) Topic(ctx context.Context, name string) (*Topic, error) {
	if err := checkTopicName(name); err != nil {
		return nil, err
	}
	t, err := a.cfg.Store.Topic(ctx, name)
	switch {
	case errors.Is(err, ErrNoTopic):
		return nil, noTopic()
	case err != nil:
		return nil, unread(err)
	case t.State != Live:
		return nil, noTopic()
	}
	return t, nil
}

// Topics gives up to n topics in order of their names, from behind `after`; more tells whether there are more.
func (a *Admin) Topics(ctx context.Context, after string, n int) (topics []*Topic, more bool, err error) {
	names, err := a.cfg.Store.TopicNames(ctx)
	if err != nil {
		return nil, false, unread(err)
	}
	names = names[sort.Search(len(names), func(i int) bool { return names[i] > after }):]
	for len(names) > 0 {
		// What is not whole is left out, so more may have to be read than are wanted.
		some := names[:min(len(names), n+1-len(topics))]
		names = names[len(some):]
		found := make([]*Topic, len(some))
		err := each(ctx, len(some), func(ctx context.Context, i int) error {
			t, err := a.cfg.Store.Topic(ctx, some[i])
			if err == nil && t.State == Live {
				found[i] = t
			}
			if errors.Is(err, ErrNoTopic) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, false, unread(err)
		}
		topics = append(topics, slices.DeleteFunc(found, func(t *Topic) bool { return t == nil })...)
		if len(topics) > n {
			return topics[:n], true, nil
		}
	}
	return topics, false, nil
}

// group gives the topic if it has the consumer group; TOPIC_NOT_FOUND, GROUP_NOT_FOUND.
func (a *Admin) group(ctx context.Context, topic, group string) (*Topic, error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	if !t.hasGroup(group) {
		return nil, noGroup()
	}
	return t, nil
}

// known refuses the name of a group that the topic has not; an empty one stands for all groups.
func (t *Topic) known(group string) error {
	if group != "" && !t.hasGroup(group) {
		return noGroup()
	}
	return nil
}

// alter changes a topic's settings: it reads them, has fn change a copy, and writes that if nobody has written meanwhile;
// else it begins again. The topic is not written if fn tells that there is nothing to change.
func (a *Admin) alter(ctx context.Context, name string, fn func(t *Topic) (changed bool, err error)) (*Topic, error) {
	for range maxTries {
		t, err := a.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		next := t.clone()
		changed, err := fn(next)
		if err != nil {
			return nil, err
		}
		if !changed {
			return t, nil
		}
		saved, err := a.save(ctx, next)
		if !errors.Is(err, ErrConflict) {
			return saved, err
		}
		if err := lifecycle.Pause(ctx, rand.N(2*changeWait)); err != nil {
			return nil, undone(err)
		}
	}
	return nil, contended()
}

// save writes the settings over those of the same version, and gives them with their new one. Its error is ErrConflict or a
// fault.
func (a *Admin) save(ctx context.Context, t *Topic) (*Topic, error) {
	var err error
	for range 1 + repeats {
		if err = a.cfg.Store.UpdateTopic(ctx, t.clone()); !errors.Is(err, ErrUnknownOutcome) {
			break
		}
	}
	a.cfg.Catalog.Forget(t.Name)
	switch {
	case errors.Is(err, ErrConflict):
		return nil, ErrConflict
	case err != nil:
		return nil, undone(err)
	}
	saved := t.clone()
	saved.Version++
	return saved, nil
}

// ready tells consumers to look into all partitions.
func (a *Admin) ready(t *Topic) {
	if a.cfg.Hints == nil {
		return
	}
	for p := range t.Partitions {
		a.cfg.Hints.Ready(t.Name, p)
	}
}

// each calls fn with 0 to n-1, some at a time, and gives the first error, which ends the rest.
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

// clone gives a copy that shares nothing.
func (t *Topic) clone() *Topic {
	c := *t
	c.Groups = slices.Clone(t.Groups)
	c.Retry.NonRetryable = slices.Clone(t.Retry.NonRetryable)
	return &c
}

// hasGroup reports whether the topic has a consumer group of the name.
func (t *Topic) hasGroup(name string) bool {
	return slices.ContainsFunc(t.Groups, func(g Group) bool { return g.Name == name })
}

func noGroup() error {
	e := fault.New(fault.NotFound, fault.GroupNotFound, "the topic has no such consumer group")
	e.Field = "group"
	return e
}

// confirmed refuses what removes things for good unless confirm names them.
func confirmed(confirm, name, what string) error {
	if confirm == name {
		return nil
	}
	e := fault.New(fault.FailedPrecondition, fault.ConfirmationRequired, "confirm: must be the %s's name", what)
	e.Field = "confirm"
	return e
}

// contended is the fault of settings that others change all the time.
func contended() error {
	return fault.New(fault.Unavailable, fault.StoreUnavailable, "others keep changing the topic: try again")
}

// Owner is a partition and who has it in a group. StreamID, Consumer and NodeID are empty if nobody does.
type Owner struct {
	Partition                  int
	StreamID, Consumer, NodeID string
	// Epoch grows with every change of owner, and never goes back.
	Epoch int64
	// Left is when the lease ends unless it is renewed.
	Left time.Duration
}

// TopicStats counts what a topic holds: each partition at one moment, the partitions one after another.
type TopicStats struct {
	Total      PartitionStats
	Partitions []PartitionStats
	// Members counts the consumers that are connected, by group.
	Members map[string]int
}
