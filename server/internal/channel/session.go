package channel

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// OpenSession creates the channel of a session, with its owner as the only member. If the owner has
// that session already, it does nothing. It fails with NOT_MEMBER if the session is another user's.
func (s *Service) OpenSession(ctx context.Context, sessionID, ownerID string) error {
	row, err := s.cfg.Store.Create(ctx, Row{
		ChannelID: ident.SessionChannel(sessionID), MembersOnly: true, Rev: 1, CreatedBy: ownerID, CreatedAt: now(s.cfg.Now),
	}, []string{ownerID})
	switch {
	case errors.Is(err, ErrExists) && (row.State != Live || row.CreatedBy != ownerID):
		e := fault.New(fault.PermissionDenied, fault.NotMember, "session_id: the session is another user's")
		e.Field = "session_id"
		return e
	case err != nil && !errors.Is(err, ErrExists):
		return outcomeUnknown(err)
	}
	// No other node has to be told: nobody can use a session before it exists.
	s.cfg.Access.cacheRow(row, s.cfg.Access.modesForgotten())
	return nil
}
