package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// ownedAge is how old the list of topics may be that Owned uses.
const ownedAge = 10 * time.Second

// ownedTopics are the topics as Owned last read them.
type ownedTopics struct {
	mu     sync.Mutex // guards the fields below; it is held while topics are read
	at     time.Time
	topics []*qlog.Topic
}

// Owned returns the partitions of which this node is the keeper, of the topics that there were at
// most 10 s ago. Topics that cannot be read are missing. Safe for concurrent use.
func (k *Keeper) Owned(ctx context.Context) (refs []qlog.Ref) {
	for _, t := range k.ownedTopics(ctx) {
		for p := range t.Partitions {
			if k.owner.owns(place{t.Name, p}) {
				refs = append(refs, t.Ref(p))
			}
		}
	}
	return refs
}

func (k *Keeper) ownedTopics(ctx context.Context) []*qlog.Topic {
	o := &k.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.at.IsZero() && time.Since(o.at) < ownedAge {
		return o.topics
	}
	names, err := k.names(ctx)
	if err != nil {
		return nil // nobody is told old numbers
	}
	topics := make([]*qlog.Topic, 0, len(names))
	for _, name := range names {
		if t, err := k.cfg.Topics.Topic(ctx, name); err == nil {
			topics = append(topics, t)
		}
	}
	if ctx.Err() != nil {
		return topics
	}
	o.at, o.topics = time.Now(), topics
	return topics
}
