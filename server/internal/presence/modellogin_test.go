package presence

import (
	"context"
	"time"
)

// modelLogins are the logins that have the slots of a user.
type modelLogins struct {
	slots map[string]Winner
	until time.Time
}

// Login implements Store.
func (m *modelStore) Login(ctx context.Context, calls []LoginCall) []LoginResult {
	results := make([]LoginResult, len(calls))
	err := m.do(ctx, "login", func(now time.Time) {
		for i := range calls {
			results[i] = m.login(&calls[i], now)
		}
	})
	if err != nil {
		// A late step still writes to results.
		failed := make([]LoginResult, len(calls))
		for i := range failed {
			failed[i].Err = err
		}
		return failed
	}
	return results
}

func (m *modelStore) login(c *LoginCall, now time.Time) LoginResult {
	s := &m.shards[c.Shard]
	switch {
	case now.After(c.NotAfter):
		return LoginResult{Outcome: Late, Now: now}
	case s.fenced[c.Node]:
		return LoginResult{Outcome: Fenced, Now: now}
	case s.epoch == "" || c.Epoch != s.epoch:
		return LoginResult{Outcome: OtherEpoch, Now: now}
	}
	if s.logins == nil {
		s.logins = map[string]*modelLogins{}
	}
	user := s.logins[c.UserID]
	if user == nil || now.After(user.until) {
		user = &modelLogins{slots: map[string]Winner{}}
		s.logins[c.UserID] = user
	}
	stored, taken := user.slots[c.Slot]
	mine := taken && stored.Connection == c.Connection
	w := c.Winner
	r := LoginResult{Outcome: Done, Now: now, Won: true}
	switch older := taken && stored.newer(w.Generation, w.Order); {
	case older && !mine:
		r.Won, r.Winner = false, stored
		return r
	case older:
		w.Generation, w.Order = stored.Generation, stored.Order
	case taken && !mine:
		r.Seq = m.append(s, Entry{UserID: c.UserID, Login: &w}, now)
	}
	user.slots[c.Slot], user.until = w, now.Add(m.slotTTL)
	r.Winner = w
	return r
}
