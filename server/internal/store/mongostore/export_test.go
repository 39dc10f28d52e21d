package mongostore

import (
	"context"

	"github.com/parleyhq/parley/server/internal/channel"
)

// AdoptHorizon gives s the horizon of other, as if one process had been told both.
func (s *Store) AdoptHorizon(other *Store) {
	at := other.horizon.get()
	s.horizon.raise(&at)
}

// TokenTime is tokenTime.
var TokenTime = tokenTime

// CreateAndDie is Create in a process that dies once the channel's document is there.
func (c *Channels) CreateAndDie(ctx context.Context, row channel.Row, userIDs []string) error {
	_, err := c.insert(ctx, row, userIDs)
	return err
}

// FinishLate is what is left to do of CreateAndDie's Create, in a process that was stopped before it.
func (c *Channels) FinishLate(ctx context.Context, row channel.Row, userIDs []string) error {
	return c.settle(ctx, &channelDocument{ID: row.ChannelID, CreatedAt: row.CreatedAt, Joining: userIDs})
}
