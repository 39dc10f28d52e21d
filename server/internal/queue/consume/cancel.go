package consume

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Entries finds messages in the log by their IDs; qlog.LookStore does.
type Entries interface {
	// EntriesAt returns the entries with these IDs that the log has, of the first ids, as many as one
	// call returns. Looked is for how many it looked.
	EntriesAt(ctx context.Context, ref qlog.Ref, ids []qlog.ID) (entries []qlog.Entry, looked int, err error)
}

// cancelGroups is in how many groups a Cancel is under way at a time.
const cancelGroups = 8

// Cancel cancels messages of a partition that no handler has begun, in every group that has not
// settled them. It returns a result for each: nil if that ended it in a group; MESSAGE_RUNNING if a
// handler of a group has begun it; MESSAGE_NOT_FOUND if it is not in the log or every group has
// settled it; STORE_UNAVAILABLE or OUTCOME_UNKNOWN.
func (s *Service) Cancel(ctx context.Context, t *qlog.Topic, number int, ids []qlog.ID) ([]error, error) {
	results := make([]error, len(ids))
	for i := range results {
		results[i] = noMessage("no message with this id waits")
	}
	for first := 0; first < len(ids); {
		entries, looked, err := s.cfg.Entries.EntriesAt(ctx, t.Ref(number), ids[first:])
		if err != nil {
			return nil, err
		}
		if looked == 0 {
			break
		}
		at := make(map[qlog.ID]*qlog.Entry, len(entries))
		for i := range entries {
			at[entries[i].ID] = &entries[i]
		}
		var items []Cancellation
		var places []int
		for i := first; i < first+looked; i++ {
			if e := at[ids[i]]; e != nil {
				items = append(items, Cancellation{ID: e.ID, Key: e.Key, UniqueKey: e.UniqueKey})
				places = append(places, i)
			}
		}
		for k, err := range s.cancelAll(ctx, t, number, items) {
			results[places[k]] = err
		}
		first += looked
	}
	return results, nil
}

// cancelAll cancels messages in all groups. Of each message it returns the weightiest result.
func (s *Service) cancelAll(ctx context.Context, t *qlog.Topic, number int, items []Cancellation) []error {
	results := make([]error, len(items))
	if len(items) == 0 {
		return results
	}
	byGroup := make([][]error, len(t.Groups))
	var calls errgroup.Group
	calls.SetLimit(cancelGroups)
	for g := range t.Groups {
		calls.Go(func() error {
			task := &cancelTask{topic: t.Name, partition: number, items: items}
			errs, err := s.call(ctx, t.Groups[g].Name, task, len(items), func(int) partition { return partition{t.Name, number} })
			if err != nil {
				errs = make([]error, len(items))
				for i := range errs {
					errs[i] = err
				}
			}
			byGroup[g] = errs
			return nil
		})
	}
	_ = calls.Wait() // the failures are among the results
	for i := range items {
		cancelled := false
		for _, errs := range byGroup {
			switch err := errs[i]; {
			case err == nil:
				cancelled = true
			case fault.Is(err, fault.DeliveryGone):
			case results[i] == nil || !unsettled(results[i]):
				results[i] = err
			}
		}
		if results[i] == nil && !cancelled {
			results[i] = noMessage("every group has settled the message")
		}
	}
	return results
}

// noMessage is the result for a message that cannot be cancelled any more.
func noMessage(text string) error {
	f := fault.New(fault.NotFound, fault.MessageNotFound, "%s", text)
	f.Field = "message_id"
	return f
}
