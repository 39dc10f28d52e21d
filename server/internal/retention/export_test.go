package retention

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
)

// Look looks at a channel as if it were the given time.
func (t *Trimmer) Look(ctx context.Context, row channel.Row, now time.Time) error {
	return t.look(ctx, row, now)
}
