package channel

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// Delete deletes a channel: its messages and memberships. Requires `manage`, and by membership the
// role Owner. Once it returns, the log's boundary is after all messages, and every later entry has
// a higher access revision. So no node shows any of them a second later, and no node appends an
// entry. A retention.Trimmer removes the rest; until then the id cannot be used again.
//
// If etag is not empty and the settings have changed since, Delete fails with ETAG_MISMATCH. A
// channel that does not exist fails with CHANNEL_NOT_FOUND. Deleting a deleted channel does
// nothing: an earlier attempt may have deleted it.
func (s *Service) Delete(ctx context.Context, channelID, etag string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if !p.Can(ident.Manage, channelID) {
		if err := s.cfg.Access.checkRole(ctx, p, Owner, channelID); err != nil {
			return err
		}
	}
	return s.end(ctx, channelID, etag)
}

// end is Delete without the check of the caller.
func (s *Service) end(ctx context.Context, channelID, etag string) error {
	row, err := s.beginDelete(ctx, channelID, etag)
	if err != nil {
		return err
	}
	s.announceChange(Change{ChannelID: channelID})
	if row.State == Deleted {
		return nil
	}
	if _, err := EndLog(ctx, s.cfg.Store, s.cfg.Appender, &row, now(s.cfg.Now)); err != nil {
		if ctx.Err() != nil {
			return outcomeUnknown(context.Cause(ctx))
		}
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the deletion is not complete; retry")
	}
	return nil
}

// beginDelete changes a channel from Live to Deleting, unless it is not Live, and returns its row.
func (s *Service) beginDelete(ctx context.Context, channelID, etag string) (Row, error) {
	rows, err := s.cfg.Store.Rows(ctx, []string{channelID})
	if err != nil {
		return Row{}, message.Unavailable(err)
	}
	row, ok := rows[channelID]
	if !ok {
		return Row{}, notFound()
	}
	for range maxUpdates {
		switch {
		case row.State != Live:
			return row, nil
		case etag != "" && etag != row.Etag():
			return Row{}, etagMismatch()
		}
		row, err = s.cfg.Store.Delete(ctx, channelID, row.SettingsRev, now(s.cfg.Now))
		if err == nil {
			return row, nil
		}
		if !errors.Is(err, ErrChanged) {
			return Row{}, outcomeUnknown(err)
		}
	}
	return Row{}, changedByOthers()
}

// LogEnd is the end of a deleted channel's log. Oldest is that of the boundary, and At is when the
// last entry was appended.
type LogEnd struct {
	Oldest int64
	At     time.Time
}

// EndLog makes sure that the log of a channel that is Deleting has an entry of the row's access
// revision, and that the log's boundary is after its last entry. It may be repeated. It does
// nothing, and returns a zero LogEnd, if the channel was created again meanwhile.
func EndLog(ctx context.Context, rows BoundaryStore, a message.Appender, row *Row, now time.Time) (LogEnd, error) {
	out := a.Append(ctx, []message.Draft{accessDraft(row)})[0]
	switch {
	case out.StaleRev > 0:
		return LogEnd{}, nil
	case out.Err != nil:
		return LogEnd{}, out.Err
	}
	to := message.Boundary{Oldest: out.Seq + 1, Expired: out.Count}
	_, err := rows.MoveBoundary(ctx, row.ChannelID, row.SettingsRev, to, now)
	return LogEnd{Oldest: to.Oldest, At: out.MsgTime}, err
}
