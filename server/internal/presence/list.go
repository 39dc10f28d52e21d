package presence

import (
	"context"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// ListPosition is a position in the list of all online users. The zero value is the beginning of
// the list, and also its end.
type ListPosition struct {
	// Shard is the shard to continue with, after its user UserID.
	Shard  int
	UserID string
}

// list returns up to limit users that are online, and the position after them. It may return fewer
// before the end. It reads the store. It fails with STORE_UNAVAILABLE if that fails, or if the
// store may lack users.
func (v *view) list(ctx context.Context, after ListPosition, limit int) ([]UserState, ListPosition, error) {
	if after.Shard < 0 || after.Shard >= Shards {
		return nil, ListPosition{}, fault.Invalid("page_token", Shards, "page_token: the shard must be below %d", Shards)
	}
	users := make(map[string]int, limit)
	states := make([]UserState, 0, limit)
	for len(states) < limit {
		page, err := v.certainPage(ctx, after, limit-len(states))
		if err != nil {
			return nil, ListPosition{}, err
		}
		for _, userID := range page.Users {
			users[userID] = len(states)
			states = append(states, UserState{UserID: userID})
		}
		if n := len(page.Users); n > 0 && len(states) == limit {
			after.UserID = page.Users[n-1]
			break
		}
		if after = (ListPosition{Shard: after.Shard + 1}); after.Shard == Shards {
			after = ListPosition{}
			break
		}
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

// certainPage reads a page of a shard. It waits up to Config.MaxStaleness for the shard to be
// settled.
func (v *view) certainPage(ctx context.Context, after ListPosition, limit int) (PageResult, error) {
	limited, cancel := context.WithTimeout(ctx, v.cfg.MaxStaleness)
	defer cancel()
	for {
		page, err := v.page(limited, &v.shards[after.Shard], after.UserID, limit)
		if err != nil {
			return page, v.unreadable(ctx, err)
		}
		if page.Epoch != "" && page.Settled() {
			return page, nil
		}
		if err := pause(limited, settleInterval); err != nil {
			return page, v.unreadable(ctx, err)
		}
	}
}

// listStates sets the states of users, whose values are indexes of states.
func (v *view) listStates(ctx context.Context, users map[string]int, states []UserState) error {
	calls := getCalls(users)
	if len(calls) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, min(v.cfg.StoreTimeout, v.cfg.MaxStaleness))
	defer cancel()
	before := make([]position, len(calls))
	for i := range calls {
		before[i] = v.shards[calls[i].Shard].position()
	}
	for i, r := range v.cfg.Store.Get(limited, calls) {
		if r.Err != nil {
			return v.unreadable(ctx, r.Err)
		}
		s := &v.shards[calls[i].Shard]
		s.mu.Lock()
		v.sawHead(s, r.Head, r.Now, before[i])
		v.release(s)
		if r.Epoch == "" || !r.Settled() {
			return v.unreadable(ctx, fmt.Errorf("shard %d lost its states at %v", calls[i].Shard, r.Now.Format(time.RFC3339)))
		}
		for j, userID := range calls[i].Users {
			states[users[userID]].State = r.States[j]
		}
	}
	return nil
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
