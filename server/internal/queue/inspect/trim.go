package inspect

import (
	"context"
	"sync"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// trimStep is how many messages one step of the store removes.
	trimStep = 1000
	// forever is a retention that keeps every message by its age.
	forever = qlog.MaxDelay
)

// Trim removes the oldest messages of a topic that keep does not keep, in each partition. Without
// force those that a group has not settled are kept too. lost counts removed messages once for each
// group that had not settled them.
func (s *Service) Trim(ctx context.Context, topic string, keep qlog.Cut, force bool) (removed, lost int, err error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex // guards removed and lost
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) error {
		for more := true; more; {
			r, l, again, err := s.trimOnce(ctx, t.Ref(p), keep, force)
			mu.Lock()
			removed, lost, more = removed+r, lost+l, again
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	return removed, lost, writeFault(err)
}

// trimOnce is one step of Trim.
func (s *Service) trimOnce(ctx context.Context, ref qlog.Ref, keep qlog.Cut, force bool) (removed, lost int, more bool, err error) {
	err = repeat(func() (err error) {
		if force {
			removed, lost, more, err = s.cfg.Store.ForceTrim(ctx, ref, keep, trimStep)
			return err
		}
		bounds := qlog.Bounds{RetainAge: keep.Age}
		if keep.Age < 0 {
			bounds = qlog.Bounds{RetainAge: forever, RetainMessages: keep.Keep}
			if keep.Keep == 0 {
				bounds = qlog.Bounds{}
			}
		}
		removed, err = s.cfg.Store.Trim(ctx, ref, bounds, trimStep)
		more = removed > 0
		return err
	})
	return removed, lost, more, err
}
