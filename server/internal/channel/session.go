package channel

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// OpenSession creates the channel of a session, with its owner as the only member. If the owner has
// that session already, it does nothing, and ignores the title. It fails with NOT_MEMBER if the
// session is another user's, and with SESSION_DELETED if the owner has deleted it.
//
// A log without a row is that of a store that was restored and has lost the row. It stays unusable,
// with NOT_MEMBER: its owner is not known, and nobody may become its owner by appending to it.
func (s *Service) OpenSession(ctx context.Context, sessionID, ownerID, title string) error {
	channelID := ident.SessionChannel(sessionID)
	state, err := s.cfg.Log.State(ctx, channelID)
	if err != nil {
		return err
	}
	if state.Head > 0 {
		rows, err := s.cfg.Store.Rows(ctx, []string{channelID})
		if err != nil {
			return message.Unavailable(err)
		}
		if _, ok := rows[channelID]; !ok {
			return notOwner("the session's owner is not known")
		}
	}
	forgotten := s.cfg.Access.modesForgotten()
	row, err := s.cfg.Store.Create(ctx, Row{
		ChannelID: channelID, MembersOnly: true, Rev: 1, CreatedBy: ownerID, CreatedAt: now(s.cfg.Now), Title: title,
	}, []string{ownerID})
	switch {
	case errors.Is(err, ErrExists) && row.CreatedBy != ownerID:
		return notOwner("the session is another user's")
	case errors.Is(err, ErrExists) && row.State != Live:
		e := fault.New(fault.FailedPrecondition, fault.SessionDeleted, "session_id: the session was deleted; use another id")
		e.Field = "session_id"
		return e
	case err != nil && !errors.Is(err, ErrExists):
		return outcomeUnknown(err)
	}
	// No other node has to be told: nobody can use a session before it exists.
	s.cfg.Access.cacheRow(row, forgotten)
	return nil
}

// notOwner returns the fault for a session that the caller cannot become the owner of.
func notOwner(why string) error {
	e := fault.New(fault.PermissionDenied, fault.NotMember, "session_id: %s", why)
	e.Field = "session_id"
	return e
}

// DeleteSession deletes a session: its messages and its membership. Requires that the caller is its
// owner, or `manage`. Everybody else gets CHANNEL_NOT_FOUND. It ends the session as Delete ends a
// channel, except that the id can never be used again. Deleting a deleted session does nothing.
func (s *Service) DeleteSession(ctx context.Context, sessionID string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if err := s.ownSession(ctx, p, sessionID); err != nil {
		return err
	}
	return s.end(ctx, ident.SessionChannel(sessionID), "")
}

// EndSession deletes a session as DeleteSession does, without a check of the caller.
func (s *Service) EndSession(ctx context.Context, channelID string) error {
	return s.end(ctx, channelID, "")
}

// RenameSession sets the title of a session; an empty one removes it. Requires that the caller is
// its owner, or `manage`. Everybody else gets CHANNEL_NOT_FOUND, and so does a session that was
// deleted.
func (s *Service) RenameSession(ctx context.Context, sessionID, title string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if err := s.ownSession(ctx, p, sessionID); err != nil {
		return err
	}
	channelID := ident.SessionChannel(sessionID)
	err = s.cfg.Store.SetTitle(ctx, channelID, title)
	switch {
	case errors.Is(err, ErrNotFound):
		return missingChannels(channelID)
	case err != nil:
		return outcomeUnknown(err)
	}
	return nil
}

// ownSession returns CHANNEL_NOT_FOUND unless the session was created and p is its owner or has
// `manage`.
func (s *Service) ownSession(ctx context.Context, p *ident.Principal, sessionID string) error {
	channelID := ident.SessionChannel(sessionID)
	rows, err := s.cfg.Store.Rows(ctx, []string{channelID})
	if err != nil {
		return message.Unavailable(err)
	}
	if row, ok := rows[channelID]; !ok || row.CreatedBy != p.Subject && !p.CanSession(ident.Manage, sessionID) {
		return missingChannels(channelID)
	}
	return nil
}

// UserSessions returns the sessions of a user that the token covers with `history`, those with the
// latest activity first. An empty ownerID means the caller; the sessions of another user require
// `manage` in all sessions, or the action read of `admin`. A page has up to pageSize sessions, at
// most 200; 0 means 50. It can have fewer, or none, and still not be the last one.
//
// Numbers, activity and cursors lag behind the logs by as much as the change feed. A session whose
// activity changes between two pages can be on both or on neither.
func (s *Service) UserSessions(ctx context.Context, ownerID string, pageSize int, pageToken string) (UserChannelPage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return UserChannelPage{}, err
	}
	ownerID = cmp.Or(ownerID, p.Subject)
	if ownerID != p.Subject && !canListAll(p) {
		return UserChannelPage{}, cannotListAll("user_id", "the sessions of another user require")
	}
	bind := &pagetoken.Binding{Call: "sessions", Subject: p.Subject, Query: struct{ OwnerID string }{ownerID}}
	return s.listSessions(ctx, p, bind, pageSize, pageToken, func(after SessionPlace, limit int) ([]Row, error) {
		return s.cfg.Store.Sessions(ctx, ownerID, after, limit)
	})
}

// EverySession is UserSessions for the sessions of all users. Requires `manage` in all sessions, or
// the action read of `admin`.
func (s *Service) EverySession(ctx context.Context, pageSize int, pageToken string) (UserChannelPage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return UserChannelPage{}, err
	}
	if !canListAll(p) {
		return UserChannelPage{}, cannotListAll("all_users", "the sessions of all users require")
	}
	bind := &pagetoken.Binding{Call: "every session", Subject: p.Subject}
	return s.listSessions(ctx, p, bind, pageSize, pageToken, func(after SessionPlace, limit int) ([]Row, error) {
		return s.cfg.Store.EverySession(ctx, after, limit)
	})
}

// canListAll reports whether p may list the sessions of other users.
func canListAll(p *ident.Principal) bool {
	return p.CanEverySession(ident.Manage) || p.CanAdmin(ident.Read)
}

func cannotListAll(field, what string) error {
	e := fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"%s: %s the capability \"session:*\" with the action %q", field, what, ident.Manage)
	e.Field = field
	return e
}

// listSessions returns a page of the sessions that read returns, without those that p's token does
// not cover.
func (s *Service) listSessions(ctx context.Context, p *ident.Principal, bind *pagetoken.Binding, pageSize int, pageToken string,
	read func(after SessionPlace, limit int) ([]Row, error),
) (page UserChannelPage, err error) {
	pageSize = cmp.Or(pageSize, 50)
	var after SessionPlace
	if pageToken != "" {
		text, err := s.tokens.Open(pageToken, bind)
		if err == nil {
			after, err = parsePlace(text)
		}
		if err != nil {
			return UserChannelPage{}, err
		}
	}
	rows, err := read(after, pageSize+1)
	if err != nil {
		return UserChannelPage{}, message.Unavailable(err)
	}
	if len(rows) > pageSize {
		last := &rows[pageSize-1]
		page.NextPageToken = s.tokens.Seal(bind, placeText(SessionPlace{last.Active, last.ChannelID}))
		rows = rows[:pageSize]
	}
	rows = slices.DeleteFunc(rows, func(row Row) bool {
		return !p.Can(ident.History, row.ChannelID) && !p.CanAdmin(ident.Read)
	})
	page.Channels, err = s.withCursors(ctx, rows)
	return page, err
}

// withCursors adds the cursors of the owners to the rows of sessions.
func (s *Service) withCursors(ctx context.Context, rows []Row) ([]UserChannel, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ChannelID
	}
	owners, err := s.cfg.Store.Owners(ctx, ids)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	sessions := make([]UserChannel, len(rows))
	for i, row := range rows {
		m := owners[row.ChannelID]
		row.Head, row.Count = max(row.Head, m.Seq), max(row.Count, m.Count)
		sessions[i] = UserChannel{Row: row, Read: m.Cursor, Unread: max(0, row.Count-max(m.Count, row.Expired))}
	}
	return sessions, nil
}

// placeText encodes a place for a page token, and parsePlace decodes it.
func placeText(p SessionPlace) string {
	return strconv.FormatInt(p.Active.UnixMilli(), 10) + " " + p.ChannelID
}

func parsePlace(text string) (SessionPlace, error) {
	ms, channelID, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(ms, 10, 64)
	return SessionPlace{time.UnixMilli(n).UTC(), channelID}, err
}
