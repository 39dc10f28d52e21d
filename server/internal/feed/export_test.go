package feed

import "github.com/parleyhq/parley/server/internal/message"

// Waiting returns the number of refills that wait in the channel's shard.
func (b *Builder) Waiting(channelID string) int {
	return len(b.refills[message.Shard(channelID, len(b.refills))])
}
