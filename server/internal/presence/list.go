package presence

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// ListPosition is a position in the list of all online users. The zero value is the beginning of
// the list, and also its end.
type ListPosition struct {
	// Shard is the shard to continue with, after its user UserID.
	Shard  int
	UserID string
}

// list returns up to limit users that are online, and the position after them. It may return fewer
// before the end. It reads the store, several shards at a time. It fails with STORE_UNAVAILABLE if
// a shard cannot be read twice, or if the store may lack users.
func (v *view) list(ctx context.Context, after ListPosition, limit int) ([]UserState, ListPosition, error) {
	if after.Shard < 0 || after.Shard >= Shards {
		return nil, ListPosition{}, fault.Invalid("page_token", Shards, "page_token: the shard must be below %d", Shards)
	}
	var (
		states = make([]UserState, 0, limit)
		users  = make(map[string]int, limit)
		read   int // shards
	)
	for len(states) < limit && after.Shard < Shards {
		room := limit - len(states)
		pages, err := v.pages(ctx, after, listShards(len(states), read, room), room)
		if err != nil {
			return nil, ListPosition{}, err
		}
		for i := range pages {
			page := pages[i].Users[:min(len(pages[i].Users), limit-len(states))]
			for _, userID := range page {
				users[userID] = len(states)
				states = append(states, UserState{UserID: userID})
			}
			if len(states) == limit && len(page) > 0 {
				after.UserID = page[len(page)-1]
				break
			}
			after = ListPosition{Shard: after.Shard + 1}
		}
		read += len(pages)
	}
	if after.Shard == Shards {
		after = ListPosition{}
	}
	if err := v.listStates(ctx, users, states); err != nil {
		return nil, ListPosition{}, err
	}
	online := states[:0]
	for _, u := range states {
		if u.State.Online() {
			online = append(online, u)
		}
	}
	return online, after, nil
}

// maxListShards is the number of shards that a list reads at a time.
const maxListShards = 16

// listShards returns how many shards to read next for room more users, if found users were in the
// shards that were read so far: as many as are expected to have them.
func listShards(found, read, room int) int {
	switch {
	case read == 0:
		return 1
	case found == 0:
		return maxListShards
	default:
		return min((room*read+found-1)/found, maxListShards)
	}
}

// pages reads pages of up to count shards at a time: the first one after a position, the others
// from their beginnings.
func (v *view) pages(ctx context.Context, after ListPosition, count, limit int) ([]PageResult, error) {
	pages := make([]PageResult, min(count, Shards-after.Shard))
	group, ctx := errgroup.WithContext(ctx)
	for i := range pages {
		from := ListPosition{Shard: after.Shard + i}
		if i == 0 {
			from = after
		}
		group.Go(func() (err error) {
			pages[i], err = v.certainPage(ctx, from, limit)
			return err
		})
	}
	return pages, group.Wait()
}

// listAttempts is how often a list tries to read a shard. One response may be lost.
const listAttempts = 2

// attemptTimeout returns a context for one attempt of a list to read the store. All attempts
// together take at most Config.MaxStaleness.
func (v *view) attemptTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(v.cfg.StoreTimeout, v.cfg.MaxStaleness/listAttempts))
}

// certainPage reads a page of a shard. It waits up to Config.MaxStaleness for the shard to be
// settled.
func (v *view) certainPage(ctx context.Context, after ListPosition, limit int) (PageResult, error) {
	limited, cancel := context.WithTimeout(ctx, v.cfg.MaxStaleness)
	defer cancel()
	for failed := 0; ; {
		attempt, done := v.attemptTimeout(limited)
		page, err := v.page(attempt, &v.shards[after.Shard], after.UserID, limit)
		done()
		switch {
		case err != nil:
			if failed++; failed == listAttempts || limited.Err() != nil {
				return page, v.unreadable(ctx, err)
			}
			continue
		case page.Epoch != "" && page.Settled():
			return page, nil
		}
		if err := lifecycle.Pause(limited, settleInterval); err != nil {
			return page, v.unreadable(ctx, err)
		}
	}
}

// listStates sets the states of users, whose values are indexes of states.
func (v *view) listStates(ctx context.Context, users map[string]int, states []UserState) error {
	calls := getCalls(users)
	var err error
	for range listAttempts {
		if calls, err = v.listSome(ctx, calls, users, states); len(calls) == 0 {
			return nil
		}
	}
	return v.unreadable(ctx, err)
}

// listSome makes calls of listStates. It returns those that failed, and the error of one of them.
func (v *view) listSome(
	ctx context.Context, calls []GetCall, users map[string]int, states []UserState,
) (failed []GetCall, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	ctx, cancel := v.attemptTimeout(ctx)
	defer cancel()
	before := make([]position, len(calls))
	for i := range calls {
		before[i] = v.shards[calls[i].Shard].position()
	}
	for i, r := range v.cfg.Store.Get(ctx, calls) {
		if r.Err != nil {
			failed, err = append(failed, calls[i]), r.Err
			continue
		}
		s := &v.shards[calls[i].Shard]
		s.mu.Lock()
		v.sawHead(s, r.Head, r.Now, before[i])
		v.release(s)
		if r.Epoch == "" || !r.Settled() {
			failed = append(failed, calls[i])
			err = fmt.Errorf("shard %d lost its states at %v", calls[i].Shard, r.Now.Format(time.RFC3339))
			continue
		}
		for j, userID := range calls[i].Users {
			states[users[userID]].State = r.States[j]
		}
	}
	return failed, err
}

// unreadable returns the error of a call with ctx that could not read the store because of err.
func (v *view) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := unavailable()
	f.Cause = err
	return f
}
