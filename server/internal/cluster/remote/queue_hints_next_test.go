package remote

import (
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/keeper"
	"github.com/parleyhq/parley/server/internal/queue/produce"
)

// The second design uses the same hints: producers and the keeper publish them, consumers listen.
var (
	_ produce.Hints = (*QueueHints)(nil)
	_ keeper.Hints  = (*QueueHints)(nil)
	_ consume.Hints = (*QueueHints)(nil)
)
