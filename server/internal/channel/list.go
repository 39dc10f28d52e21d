package channel

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// MemberPage is a page of a channel's members.
type MemberPage struct {
	Members []Member
	// NextPageToken is empty at the end only.
	NextPageToken string
}

// Mine is a channel as it is to one of its members.
type Mine struct {
	Row Row
	// Read is how far he has read. It is never beyond the row's numbers.
	Read Cursor
	// Unread is how many messages lie after the cursor.
	Unread int64
	// LastMessage is the newest message as it is now; nil while there is none, and for a token without `history`.
	LastMessage *message.Message
}

// MinePage is a page of somebody's channels.
type MinePage struct {
	Channels []Mine
	// NextPageToken is empty at the end only.
	NextPageToken string
}

// Members gives a channel's members by user id: pageSize of them, at most 1000; 0 means 100. It wants `history`. A
// channel that does not exist has none.
func (s *Service) Members(ctx context.Context, channelID string, pageSize int, pageToken string) (MemberPage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return MemberPage{}, err
	}
	if err := s.cfg.Access.ForRead(ctx, p, channelID); err != nil {
		return MemberPage{}, err
	}
	if pageSize == 0 {
		pageSize = 100
	}
	bind := &pagetoken.Binding{Call: "members", Subject: p.Subject, Query: struct{ ChannelID string }{channelID}}
	after := ""
	if pageToken != "" {
		if after, err = s.tokens.Open(pageToken, bind); err != nil {
			return MemberPage{}, err
		}
	}
	members, err := s.cfg.Store.Members(ctx, channelID, after, pageSize+1)
	if err != nil {
		return MemberPage{}, message.Unavailable(err)
	}
	page := MemberPage{Members: members}
	if len(members) > pageSize {
		page.Members = members[:pageSize]
		page.NextPageToken = s.tokens.Seal(bind, members[pageSize-1].UserID)
	}
	return page, nil
}

// Mine gives the caller's channels by id, those that his token covers with any action: pageSize of them, at most 200;
// 0 means 50. Fewer come at the end only, or where last messages fill MaxPageBytes.
//
// Numbers and last messages are as of the change feed. A membership of a channel whose row is not there, as after a
// restore, is left out: whether the channel takes members only is not known until its next message.
func (s *Service) Mine(ctx context.Context, pageSize int, pageToken string) (MinePage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return MinePage{}, err
	}
	if pageSize == 0 {
		pageSize = 50
	}
	bind := &pagetoken.Binding{Call: "mine", Subject: p.Subject}
	after := ""
	if pageToken != "" {
		if after, err = s.tokens.Open(pageToken, bind); err != nil {
			return MinePage{}, err
		}
	}
	mine, err := s.mine(ctx, p, after, pageSize+1) // one more tells whether there are more
	if err != nil {
		return MinePage{}, err
	}
	if err := s.addLastMessages(ctx, p, mine[:min(pageSize, len(mine))]); err != nil {
		return MinePage{}, err
	}
	n, bytes := 0, 0
	for ; n < min(pageSize, len(mine)); n++ {
		if m := mine[n].LastMessage; m != nil {
			if bytes += len(m.Content); bytes > s.cfg.MaxPageBytes && n > 0 {
				break
			}
		}
	}
	page := MinePage{Channels: mine[:n]}
	if n < len(mine) {
		page.NextPageToken = s.tokens.Seal(bind, mine[n-1].Row.ChannelID)
	}
	return page, nil
}

// mine gives the first of the caller's channels after a place, without last messages: fewer than limit at the end only.
func (s *Service) mine(ctx context.Context, p *ident.Principal, after string, limit int) ([]Mine, error) {
	var mine []Mine
	for batch := min(limit, maxKeys); ; batch = maxKeys {
		members, err := s.cfg.Store.Memberships(ctx, p.Subject, after, batch)
		if err != nil {
			return nil, message.Unavailable(err)
		}
		var ids []string
		for i := range members {
			if after = members[i].ChannelID; covered(p, after) {
				ids = append(ids, after)
			}
		}
		some, err := s.look(ctx, p.Subject, ids)
		if err != nil {
			return nil, err
		}
		mine = append(mine, some...)
		if len(mine) >= limit {
			return mine[:limit], nil
		}
		if len(members) < batch {
			return mine, nil
		}
	}
}

// look gives the channels as they are to the user. Cursors are read after rows, which move after cursors: so what the
// user sent himself is never unread.
func (s *Service) look(ctx context.Context, userID string, channelIDs []string) ([]Mine, error) {
	if len(channelIDs) == 0 {
		return nil, nil
	}
	rows, err := s.cfg.Store.Rows(ctx, channelIDs)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	members, err := s.cfg.Store.MembersOf(ctx, userID, channelIDs)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	mine := make([]Mine, 0, len(channelIDs))
	for _, id := range channelIDs {
		row, ok := rows[id]
		m, still := members[id] // he may have been removed meanwhile
		if !ok || !still {
			continue
		}
		s.cfg.Access.saw(row)
		// A row may be behind the log, and then behind the cursor, which shows as well how far the log has come.
		row.Head, row.Count = max(row.Head, m.Seq), max(row.Count, m.Count)
		mine = append(mine, Mine{Row: row, Read: m.Cursor, Unread: row.Count - m.Count})
	}
	return mine, nil
}

// addLastMessages reads the newest messages of those channels whose history the caller may read.
func (s *Service) addLastMessages(ctx context.Context, p *ident.Principal, mine []Mine) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(16)
	for i := range mine {
		c := &mine[i]
		if c.Row.LastMessage == 0 || !p.Can(ident.History, c.Row.ChannelID) {
			continue
		}
		reads.Go(func() error {
			m, ok, err := s.cfg.Log.MessageAt(ctx, c.Row.ChannelID, c.Row.LastMessage)
			if ok {
				c.LastMessage = &m
			}
			return err
		})
	}
	return reads.Wait()
}

// covered reports whether the token allows anything at all on the channel.
func covered(p *ident.Principal, channelID string) bool {
	for _, action := range [...]ident.Action{
		ident.Subscribe, ident.History, ident.Send, ident.Moderate, ident.SendAs, ident.Manage,
	} {
		if p.Can(action, channelID) {
			return true
		}
	}
	return false
}
