package feed

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// ErrStaleLoad says that entries were read too long ago to be cached.
var ErrStaleLoad = errors.New("the load is too old")

// CacheWriter writes the cache of newest entries. The Builder is the only one to call it. Every call may be repeated
// without harm, so an error leaves nothing to undo.
type CacheWriter interface {
	// Append takes each run's entries, in their order, and returns for each run how many of them are done, from the front.
	// An entry that the channel's set already reaches changes nothing. The one that follows on the set's newest is added,
	// and the target of an edit or recall replaced if the set holds it. An edit or recall that does not follow on deletes
	// the set. An insert that does not follow on ends the run before it: the set must be replaced first. A channel without
	// a set, and one whose set is of another epoch, has nothing that an entry could follow.
	Append(ctx context.Context, runs []Run) ([]int, error)
	// Now is the cache's own time as far as the channel is concerned, for Replace.
	Now(ctx context.Context, channelID string) (time.Time, error)
	// Replace makes entries the channel's set: dense, ascending, of one epoch. It does nothing if the set is of that epoch
	// and reaches as far as entries. began is what Now was before entries were read from the store: if that is more than
	// 2 s ago when the cache is to be written, it is not, and the error is ErrStaleLoad.
	Replace(ctx context.Context, channelID string, began time.Time, entries []message.Cached) error
	// Drop deletes the channel's set.
	Drop(ctx context.Context, channelID string) error
}

// Run is entries of one channel and one epoch, in the order in which they came.
type Run struct {
	ChannelID string
	Epoch     string
	Entries   []Change
}

// Change is what one entry does to a cached set.
type Change struct {
	// Entry is what is added.
	Entry message.Cached
	// Target is, for an edit or a recall, the changed message as it now is.
	Target *message.Cached
}
