package presence

import (
	"context"
	"slices"
	"time"
)

// modelLogin is the login that has a slot, and the last two connections that were replaced, the
// newest first.
type modelLogin struct {
	Winner

	replaced []string
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
		s.logins = map[string]map[string]modelLogin{}
	}
	if s.logins[c.UserID] == nil {
		s.logins[c.UserID] = map[string]modelLogin{}
	}
	slots := s.logins[c.UserID]
	stored, taken := slots[c.Slot]
	mine := taken && stored.Connection == c.Connection
	w := c.Winner
	switch {
	case w.Generation != 0:
	case mine:
		w.Generation = stored.Generation
	default:
		w.Generation = max(stored.Generation+1, now.UnixMicro())
	}
	switch {
	case w.Order != 0:
	case mine:
		w.Order = stored.Order
	default:
		w.Order = max(stored.Order+1, now.UnixMicro())
	}
	older := taken && stored.newer(w.Generation, w.Order)
	// The late repeat of a call that another login has answered since.
	repeat := (c.Generation == 0 || c.Order == 0) && slices.Contains(stored.replaced, c.Connection)
	r := LoginResult{Outcome: Done, Now: now, Winner: stored.Winner}
	if !mine && (older || repeat) {
		return r
	}
	if older {
		w.Generation, w.Order = stored.Generation, stored.Order
	}
	replaced := stored.replaced
	if taken && !mine {
		replaced = append([]string{stored.Connection}, replaced...)
		replaced = replaced[:min(len(replaced), 2)]
		r.Seq = m.append(s, Entry{UserID: c.UserID, Login: &w}, now)
	}
	slots[c.Slot] = modelLogin{w, replaced}
	r.Won, r.Winner = true, w
	return r
}
