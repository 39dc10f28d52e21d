package presence

import (
	"context"
	"time"
)

// renewals writes the parts of one shard after another again, each once in a third of the TTL, and
// makes it be swept of dead nodes again. It enters the logins of its connections again, too, so
// that a stream that lives for weeks keeps its slot.
func (h *Hub) renewals(ctx context.Context) {
	tick := time.NewTicker(max(h.cfg.TTL/3/Shards, time.Millisecond))
	defer tick.Stop()
	for shard := 0; ; shard = (shard + 1) % Shards {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.conns.renew(shard)
		h.sweeper.again(shard)
		if h.cfg.Policy != PolicyAll {
			h.logins.again(h.conns.liveOf(shard))
		}
		if id, ok := h.lease.current(); ok {
			call, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
			if _, err := h.compare(call, shard, id); err != nil && ctx.Err() == nil {
				h.report("compare", err)
			}
			cancel()
		}
	}
}

// compare queues the users of whom the store has a part of this node although the node has none,
// and returns how many such users wait to be written.
func (h *Hub) compare(ctx context.Context, shard int, id string) (ghosts int, err error) {
	for cursor := uint64(0); ; {
		users, next, err := h.cfg.Store.Members(ctx, shard, id, cursor)
		if err != nil {
			return ghosts, err
		}
		ghosts += h.conns.ghosts(shard, users)
		if cursor = next; cursor == 0 {
			return ghosts, nil
		}
	}
}
