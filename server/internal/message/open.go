package message

import (
	"context"
	"time"
)

// OpenLister finds open messages.
type OpenLister interface {
	// OpenMessages returns up to limit messages of the given shards that are stored as open and whose
	// MsgTime is in the half-open interval [from, before), in ascending order of MsgTime, channel and
	// seq, without texts and metadata. The close or the recall of a message may be pending, and the
	// message may have expired. The result may lag as that of LogReader.Entries. The cost depends on
	// the number of open messages in that time only, and is one seek per shard if there are none. A
	// limit below 1 returns nothing. It may be called concurrently.
	OpenMessages(ctx context.Context, shards []int, from, before time.Time, limit int) ([]Entry, error)
}
