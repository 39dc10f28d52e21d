package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// trimmers is how many partitions are trimmed at a time.
	trimmers = 2
	// dirtySettled is how many settled messages have a partition trimmed at once.
	dirtySettled = 256
	// maxTrim is how many messages one call removes.
	maxTrim = 1000
	// maxDirty bounds the partitions that are remembered as dirty. What is forgotten is found by
	// the look at all partitions.
	maxDirty = 100_000
)

// dirt knows the partitions in which messages were settled since they were trimmed.
type dirt struct {
	kick chan struct{}

	mu   sync.Mutex // guards the fields below
	refs map[qlog.Ref]*spot
	// full are those with dirtySettled messages, in order.
	full []qlog.Ref
}

// spot is a dirty partition.
type spot struct {
	since    time.Time
	settled  int
	trimming bool
}

// Dirty notes that a lease holder on this node settled messages in a partition. It does not block.
// The partition is trimmed when there were 256, or after a second. A holder need not call it for
// messages that its commit deleted.
func (k *Keeper) Dirty(ref qlog.Ref, settled int) {
	d := &k.dirt
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.refs[ref]
	if s == nil {
		if len(d.refs) >= maxDirty {
			return
		}
		s = &spot{}
		d.refs[ref] = s
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	before := s.settled
	s.settled += settled
	if before < dirtySettled && s.settled >= dirtySettled && !s.trimming {
		d.full = append(d.full, ref)
		d.wake()
	}
}

func (d *dirt) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// take returns a partition that is to be trimmed now, if there is one.
func (d *dirt) take(old time.Duration) (ref qlog.Ref, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.full) > 0 && !ok {
		ref, d.full = d.full[0], d.full[1:]
		s := d.refs[ref]
		ok = s != nil && !s.trimming && !s.since.IsZero()
	}
	if !ok {
		now := time.Now()
		for r, s := range d.refs {
			if !s.trimming && now.Sub(s.since) >= old {
				ref, ok = r, true
				break
			}
		}
	}
	if ok {
		*d.refs[ref] = spot{trimming: true}
		d.wake() // the other trimmers, in case there is more
	}
	return ref, ok
}

// trimmed notes that a partition was trimmed. again: there was more than one call removes, or it
// failed.
func (d *dirt) trimmed(ref qlog.Ref, again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.refs[ref]
	s.trimming = false
	switch {
	case again && s.since.IsZero():
		s.since = time.Now()
	case s.since.IsZero():
		delete(d.refs, ref)
	case s.settled >= dirtySettled:
		d.full = append(d.full, ref)
		d.wake()
	}
}

// trimDirty trims dirty partitions until ctx ends.
func (k *Keeper) trimDirty(ctx context.Context) {
	old := k.cfg.times.dirty
	ticker := time.NewTicker(old / 4)
	defer ticker.Stop()
	for {
		ref, ok := k.dirt.take(old * 3 / 4) // so that no partition waits for longer than old
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			case <-k.dirt.kick:
			}
			continue
		}
		err := k.trim(ctx, ref)
		k.dirt.trimmed(ref, err != nil)
		if err != nil {
			k.trouble("trim", err)
			if lifecycle.Pause(ctx, failWait) != nil {
				return
			}
		}
	}
}

// trim removes what a partition does not need any more. A partition of a topic that does not exist
// any more is clean.
func (k *Keeper) trim(ctx context.Context, ref qlog.Ref) error {
	t, err := k.cfg.Topics.Topic(ctx, ref.Topic)
	if err == nil && t.UID != ref.UID {
		t, err = k.newest(ctx, ref.Topic)
	}
	if fault.Is(err, fault.TopicNotFound) || err == nil && (t.UID != ref.UID || ref.Partition >= t.Partitions) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.trimTopic(ctx, t, ref.Partition)
}

// trimTopic is trim of a topic that was just read.
func (k *Keeper) trimTopic(ctx context.Context, t *qlog.Topic, partition int) error {
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		removed, err := k.cfg.Store.Trim(call, t.Ref(partition), t.Bounds, maxTrim)
		cancel()
		if errors.Is(err, qlog.ErrNoTopic) {
			// Lost, or removed a moment ago. The next call that uses the partition restores it.
			k.cfg.Topics.Forget(t.Name)
			return nil
		}
		if err != nil || removed < maxTrim/2 {
			return err
		}
	}
}
