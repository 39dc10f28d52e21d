package redispresence

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

// Login implements presence.Store. A repeat of a call does not return the position that the first
// call logged.
func (s *Store) Login(ctx context.Context, calls []presence.LoginCall) []presence.LoginResult {
	results := make([]presence.LoginResult, len(calls))
	var b batch
	for i := range calls {
		call := &calls[i]
		if err := checkLogin(call); err != nil {
			results[i].Err = err
			continue
		}
		b.add(i, []string{s.keys.meta(call.Shard), s.keys.log(call.Shard), s.keys.logins(call.Shard, call.UserID)}, []any{
			call.Node, deadline(call.NotAfter), millis(loginTTL), s.length, call.Epoch, call.UserID, call.Slot,
			strconv.FormatInt(call.Generation, 10), call.Connection, strconv.Itoa(int(call.Platform)), call.Device,
			strconv.FormatInt(call.Order, 10),
		})
	}
	b.run(ctx, s, s.scripts.login, func(i int, cmd *redis.Cmd) { results[i] = loginResult(&calls[i], cmd) })
	return results
}

func checkLogin(call *presence.LoginCall) error {
	var c checks
	c.shard(call.Shard)
	c.user(call.UserID)
	c.node(call.Node)
	c.epoch(call.Epoch)
	c.word("slot", call.Slot, 1, maxWord)
	c.word("connection", call.Connection, 1, maxWord)
	c.word("device", call.Device, 0, maxWord)
	c.thatf(call.Platform.Valid(), "platform %d is unknown", call.Platform)
	c.thatf(call.Generation > 0 && call.Generation <= maxGeneration,
		"generation %d must be from 1 to %d", call.Generation, int64(maxGeneration))
	c.thatf(call.Order > 0 && call.Order <= maxGeneration, "order %d must be from 1 to %d", call.Order, int64(maxGeneration))
	return c.err
}

func loginResult(c *presence.LoginCall, cmd *redis.Cmd) presence.LoginResult {
	r := read(shardName(c.Shard), cmd)
	var result presence.LoginResult
	result.Outcome, result.Now = r.outcome()
	if result.Outcome == presence.Done {
		result.Won, result.Seq = r.int() != 0, r.int()
		result.Winner = presence.Winner{
			Slot: c.Slot, Generation: r.int(), Order: r.int(), Connection: r.text(), Node: r.text(),
			Platform: presence.Platform(r.int()), Device: r.text(), //nolint:gosec // the script matches one digit
		}
	}
	if r.err != nil {
		return presence.LoginResult{Err: r.err}
	}
	return result
}
