package mongostore

import (
	"context"

	"github.com/parleyhq/parley/server/internal/channel"
)

// AdoptHorizon raises s's horizon to that of other, as if one process had received the answers to
// both.
func (s *Store) AdoptHorizon(other *Store) {
	at := other.horizon.get()
	s.horizon.raise(&at)
}

// DefaultShards exports defaultShards.
const DefaultShards = defaultShards

// TokenTime exports tokenTime.
var TokenTime = tokenTime

// CreateAndDie is a Create in a process that dies once the channel's document is stored.
func (c *Channels) CreateAndDie(ctx context.Context, row channel.Row, userIDs []string) error {
	_, err := c.insert(ctx, row, userIDs)
	return err
}

// FinishLate does the rest of CreateAndDie's Create, as a process that was suspended in between.
func (c *Channels) FinishLate(ctx context.Context, row channel.Row, userIDs []string) error {
	return c.settle(ctx, &channelDocument{ID: row.ChannelID, CreatedAt: row.CreatedAt, Joining: userIDs})
}

// Expire makes the cached modes settledFor older.
func (c *Channels) Expire() {
	for id, mode := range c.settled.All() {
		mode.read = mode.read.Add(-settledFor)
		c.settled.Set(id, mode)
	}
}
