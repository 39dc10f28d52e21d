package keeper

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// ageRounds is in how many rounds dead letters are aged once: they live for days.
	ageRounds = 10
	// maxAge is how many dead letters one call removes.
	maxAge = 1000
	// trimRounds is in how many rounds a log is trimmed once whose length does not change.
	trimRounds = 5
)

// lookAround looks at all partitions of this node, in one round after the other, until ctx ends. It
// spreads a round over its time, so that the store has the same work all the time.
func (k *Keeper) lookAround(ctx context.Context) {
	// Nodes that start together must not look together, nor a node that starts again and again at
	// once.
	if lifecycle.Pause(ctx, rand.N(k.cfg.times.round)) != nil {
		return
	}
	lengths := map[place]int64{}
	for round := 0; ; round++ {
		began := time.Now()
		names, err := k.names(ctx)
		if err != nil {
			k.trouble("list topics", err)
		}
		for i, name := range names {
			due := began.Add(k.cfg.times.round * time.Duration(i) / time.Duration(len(names)))
			if lifecycle.Pause(ctx, max(time.Until(due), 0)) != nil {
				return
			}
			if err := k.lookAt(ctx, name, round+i, lengths); err != nil && ctx.Err() == nil {
				k.trouble("look at topic "+name, err)
				if lifecycle.Pause(ctx, failWait) != nil { // the round becomes longer
					return
				}
			}
		}
		if lifecycle.Pause(ctx, max(time.Until(began.Add(k.cfg.times.round)), failWait)) != nil {
			return
		}
	}
}

func (k *Keeper) names(ctx context.Context) ([]string, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cfg.Store.TopicNames(call)
}

// lookAt looks at this node's partitions of a topic. turn counts the looks. lengths has the lengths
// of the logs at the look before: of a log that is as long as then, and in which no holder settled
// messages on this node, it is unlikely that anything can be removed.
func (k *Keeper) lookAt(ctx context.Context, name string, turn int, lengths map[place]int64) error {
	t, err := k.cfg.Topics.Topic(ctx, name)
	if fault.Is(err, fault.TopicNotFound) {
		return nil // it is being created or removed
	}
	if err != nil {
		return err
	}
	var mine []int
	for p := range t.Partitions {
		if k.owner.owns(place{name, p}) {
			mine = append(mine, p)
		}
	}
	if turn%ageRounds == 0 && k.cfg.Ager != nil && t.DeadLetterAge > 0 {
		for _, p := range mine {
			if err := k.ageLetters(ctx, t, p); err != nil {
				return err
			}
		}
	}
	if len(t.Groups) == 0 || len(mine) == 0 {
		return nil // without a group nothing is settled
	}
	now, err := k.lengths(ctx, t, mine)
	if err != nil {
		return err
	}
	for i, p := range mine {
		at := place{name, p}
		if before, known := lengths[at]; known && before == now[i] && t.RetainAge == 0 && turn%trimRounds != 0 {
			continue
		}
		if err := k.clean(ctx, t, p, now[i]); err != nil {
			return err
		}
		if lengths[at] = now[i]; now[i] == 0 || len(lengths) > maxDirty {
			delete(lengths, at)
		}
	}
	return nil
}

func (k *Keeper) lengths(ctx context.Context, t *qlog.Topic, partitions []int) ([]int64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cfg.Store.Lengths(call, t, partitions)
}

// clean removes settled messages of a partition that has so many messages in its log.
func (k *Keeper) clean(ctx context.Context, t *qlog.Topic, partition int, length int64) error {
	if length == 0 {
		return nil
	}
	if err := k.trimTopic(ctx, t, partition); err != nil {
		return err
	}
	if len(t.Groups) < 2 || length < sweepAtLeast {
		return nil // a group that is alone has its holder delete what lies behind an open entry
	}
	return k.sweepPartition(ctx, t, partition)
}

// ageLetters removes old dead letters.
func (k *Keeper) ageLetters(ctx context.Context, t *qlog.Topic, partition int) error {
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		removed, err := k.cfg.Ager.Age(call, t.Ref(partition), t.DeadLetterAge, 0, maxAge)
		cancel()
		if err != nil || removed < maxAge {
			return err
		}
	}
}
