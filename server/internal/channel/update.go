package channel

import (
	"context"
	"errors"
	"strconv"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// UpdateRequest describes a change of a channel's settings.
type UpdateRequest struct {
	ChannelID string
	// SetRetention replaces the channel's own policy by Retention; nil means the server's default.
	SetRetention bool
	Retention    *Retention
	// MembersOnly closes the channel if it is true, and opens it if it is false. Nil keeps the mode.
	MembersOnly *bool
	// Etag is the Row.Etag of the settings that the caller has seen. Empty means that any settings are
	// changed.
	Etag string
}

// Get returns a channel. Requires `history`. A channel that does not exist fails with
// CHANNEL_NOT_FOUND.
func (s *Service) Get(ctx context.Context, channelID string) (Row, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Row{}, err
	}
	if _, err := s.cfg.Access.ForRead(ctx, p, ident.History, channelID, 0); err != nil {
		return Row{}, err
	}
	return s.existing(ctx, channelID)
}

// existing returns the row of a channel, or the fault CHANNEL_NOT_FOUND if there is none or it was
// deleted.
func (s *Service) existing(ctx context.Context, channelID string) (Row, error) {
	forgotten := s.cfg.Access.modesForgotten()
	rows, err := s.cfg.Store.Rows(ctx, []string{channelID})
	if err != nil {
		return Row{}, message.Unavailable(err)
	}
	row, ok := rows[channelID]
	if !ok || row.State != Live {
		return Row{}, notFound()
	}
	s.cfg.Access.cacheRow(row, forgotten)
	return row, nil
}

// maxUpdates is how often an update without an etag is tried while others change the settings.
const maxUpdates = 5

// Update changes the settings of a channel and returns its row. Requires `manage`, and by
// membership the role Owner. If the settings have changed since the request's etag, it fails with
// ETAG_MISMATCH, unless they are as requested: an earlier attempt may have changed them. A channel
// that does not exist fails with CHANNEL_NOT_FOUND.
//
// Once a call that closes a channel returns, every later entry of the log has a higher access
// revision than the earlier ones, whichever node appends it. So no node shows it to anybody whom it
// has not checked since. Reads by users who are not members fail within a second.
func (s *Service) Update(ctx context.Context, r UpdateRequest) (Row, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Row{}, err
	}
	if !p.Can(ident.Manage, r.ChannelID) {
		if err := s.cfg.Access.checkRole(ctx, p, Owner, r.ChannelID); err != nil {
			return Row{}, err
		}
	}
	row, err := s.existing(ctx, r.ChannelID)
	for range maxUpdates {
		wanted := r.apply(&row)
		switch {
		case errors.Is(err, ErrNotFound):
			return Row{}, notFound()
		case err != nil && !errors.Is(err, ErrChanged):
			return Row{}, outcomeUnknown(err)
		case row.MembersOnly == wanted.MembersOnly && sameRetention(row.Retention, wanted.Retention):
			return row, s.markRev(ctx, &r, &row)
		case r.Etag != "" && r.Etag != row.Etag():
			return Row{}, etagMismatch()
		}
		before := row.Rev
		row, err = s.cfg.Store.SetSettings(ctx, r.ChannelID, row.SettingsRev, wanted, now(s.cfg.Now))
		if err == nil {
			if row.Rev != before {
				s.announceChange(Change{ChannelID: row.ChannelID})
				s.cfg.Access.cacheRow(row, s.cfg.Access.modesForgotten())
			}
			return row, s.markRev(ctx, &r, &row)
		}
	}
	if errors.Is(err, ErrChanged) {
		return Row{}, changedByOthers()
	}
	return Row{}, outcomeUnknown(err)
}

// apply returns the settings of a channel as the request changes them.
func (r *UpdateRequest) apply(row *Row) Settings {
	set := Settings{MembersOnly: row.MembersOnly, Retention: row.Retention}
	if r.SetRetention {
		set.Retention = r.Retention
	}
	if r.MembersOnly != nil {
		set.MembersOnly = *r.MembersOnly
	}
	return set
}

// markRev makes sure that all later entries of the log have at least the access revision of the
// row, if the request sets the mode: it appends an entry with this revision, unless the log has
// one. It does so even if the row had the requested mode before, because an earlier attempt may
// have ended between the two steps.
func (s *Service) markRev(ctx context.Context, r *UpdateRequest, row *Row) error {
	if r.MembersOnly == nil || row.SettingsRev == 0 || row.Rev == 0 {
		return nil // the mode has never changed
	}
	out := s.cfg.Appender.Append(ctx, []message.Draft{accessDraft(row)})[0]
	if out.Err == nil || out.StaleRev > 0 { // the log has a later revision
		return nil
	}
	if ctx.Err() != nil {
		return outcomeUnknown(context.Cause(ctx))
	}
	return fault.Wrap(out.Err, fault.Unavailable, fault.OutcomeUnknown, "the change is not complete; retry")
}

// accessDraft returns the draft of the entry that marks the access revision of a row.
func accessDraft(row *Row) message.Draft {
	return message.Draft{
		Kind: message.KindAccess, ChannelID: row.ChannelID, ClientMsgID: "access-" + strconv.FormatInt(row.Rev, 10), Rev: row.Rev,
	}
}

func sameRetention(a, b *Retention) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
