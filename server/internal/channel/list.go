package channel

import (
	"context"
	"slices"
	"strings"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// MemberPage is a page of a channel's members.
type MemberPage struct {
	Members []Member
	// NextPageToken is empty on the last page only.
	NextPageToken string
}

// UserChannel is a channel from the point of view of one of its members.
type UserChannel struct {
	Row Row
	// Read is how far the member has read. It is never beyond the row's numbers.
	Read Cursor
	// Unread is the number of messages after the cursor.
	Unread int64
	// LastMessage is the newest message in its current state; nil if there is none, if the store no
	// longer has it, or if the token lacks `history`.
	LastMessage *message.Message
}

// UserChannelPage is a page of a user's channels.
type UserChannelPage struct {
	Channels []UserChannel
	// NextPageToken is empty on the last page only.
	NextPageToken string
}

// Members returns the members and followers of a channel in order of user id. A page has pageSize
// members, at most 1000; 0 means 100. Requires `history`. A channel that does not exist has no
// members.
func (s *Service) Members(ctx context.Context, channelID string, pageSize int, pageToken string) (MemberPage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return MemberPage{}, err
	}
	if _, err := s.cfg.Access.ForRead(ctx, p, ident.History, channelID, 0); err != nil {
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

// UserChannels returns the caller's channels that the token covers with any capability, in order of
// id. A page has pageSize channels, at most 200; 0 means 50. It has fewer only at the end, or if
// the last messages fill MaxPageBytes.
//
// Numbers and last messages lag behind the log by as much as the change feed. A membership of a
// channel without a row, as after a restore, is omitted: whether the channel is members-only is
// unknown until its next message.
func (s *Service) UserChannels(ctx context.Context, pageSize int, pageToken string) (UserChannelPage, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return UserChannelPage{}, err
	}
	if pageSize == 0 {
		pageSize = 50
	}
	bind := &pagetoken.Binding{Call: "mine", Subject: p.Subject}
	after := ""
	if pageToken != "" {
		if after, err = s.tokens.Open(pageToken, bind); err != nil {
			return UserChannelPage{}, err
		}
	}
	mine, err := s.userChannels(ctx, p, after, pageSize+1) // one more shows whether there is a next page
	if err != nil {
		return UserChannelPage{}, err
	}
	if err := s.addLastMessages(ctx, p, mine[:min(pageSize, len(mine))]); err != nil {
		return UserChannelPage{}, err
	}
	n, bytes := 0, 0
	for ; n < min(pageSize, len(mine)); n++ {
		if m := mine[n].LastMessage; m != nil {
			if bytes += m.Size(); bytes > s.cfg.MaxPageBytes && n > 0 {
				break
			}
		}
	}
	page := UserChannelPage{Channels: mine[:n]}
	if n < len(mine) {
		page.NextPageToken = s.tokens.Seal(bind, mine[n-1].Row.ChannelID)
	}
	return page, nil
}

// userChannels returns the first limit of the caller's channels after an id, without sessions and
// last messages. It returns fewer only at the end.
func (s *Service) userChannels(ctx context.Context, p *ident.Principal, after string, limit int) ([]UserChannel, error) {
	var mine []UserChannel
	for batch := min(limit, maxKeys); ; batch = maxKeys {
		members, err := s.cfg.Store.Memberships(ctx, p.Subject, after, batch)
		if err != nil {
			return nil, message.Unavailable(err)
		}
		members = beforeSessions(members)
		var ids []string
		for i := range members {
			if after = members[i].ChannelID; coversAny(p.Covers, after) {
				ids = append(ids, after)
			}
		}
		some, err := s.readUserChannels(ctx, p, ids)
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

// beforeSessions returns the memberships, which are in order of channel id, before the first one of
// a session. All later ones are of sessions too: SessionPrefix is greater than the bytes of other
// ids.
func beforeSessions(members []Member) []Member {
	n, _ := slices.BinarySearchFunc(members, ident.SessionPrefix, func(m Member, prefix string) int {
		return strings.Compare(m.ChannelID, prefix)
	})
	return members[:n]
}

// readUserChannels returns the channels from the point of view of the caller. It omits deleted
// ones, and those that the caller only follows, if they are members-only or the token covers them
// by membership only. It reads cursors after rows, because Store.Advance moves cursors before rows:
// a user's own messages are then never unread.
func (s *Service) readUserChannels(ctx context.Context, p *ident.Principal, channelIDs []string) ([]UserChannel, error) {
	if len(channelIDs) == 0 {
		return nil, nil
	}
	forgotten := s.cfg.Access.modesForgotten()
	rows, err := s.cfg.Store.Rows(ctx, channelIDs)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	members, err := s.cfg.Store.MembersOf(ctx, p.Subject, channelIDs)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	mine := make([]UserChannel, 0, len(channelIDs))
	for _, id := range channelIDs {
		row, ok := rows[id]
		m, still := members[id] // the user may have been removed meanwhile
		if !ok || !still || row.State != Live {
			continue
		}
		s.cfg.Access.cacheRow(row, forgotten)
		if !m.IsMember() && (row.MembersOnly || !coversAny(p.Can, id)) {
			continue
		}
		// A row may lag behind the log, and then behind the cursor, which also shows how far the
		// log extends.
		row.Head, row.Count = max(row.Head, m.Seq), max(row.Count, m.Count)
		mine = append(mine, UserChannel{Row: row, Read: m.Cursor, Unread: max(0, row.Count-max(m.Count, row.Expired))})
	}
	return mine, nil
}

// addLastMessages reads and sets LastMessage of those channels whose history the caller may read.
func (s *Service) addLastMessages(ctx context.Context, p *ident.Principal, mine []UserChannel) error {
	var places []message.Place
	for i := range mine {
		if row := &mine[i].Row; row.LastMessage >= row.First() && p.Covers(ident.History, row.ChannelID) {
			places = append(places, message.Place{ChannelID: row.ChannelID, Seq: row.LastMessage})
		}
	}
	bytes := 0
	for some := range slices.Chunk(places, lastMessagesRead) {
		last, err := s.cfg.Log.MessagesAt(ctx, some)
		if err != nil {
			return err
		}
		for i := range mine {
			if m, ok := last[message.Place{ChannelID: mine[i].Row.ChannelID, Seq: mine[i].Row.LastMessage}]; ok {
				mine[i].LastMessage = &m
				bytes += m.Size()
			}
		}
		if bytes > s.cfg.MaxPageBytes {
			break // the page ends before the others
		}
	}
	return nil
}

// lastMessagesRead is the number of last messages in one read. It bounds what is read for a page
// and not returned.
const lastMessagesRead = 32

// coversAny reports whether can allows any action on the channel.
func coversAny(can func(ident.Action, string) bool, channelID string) bool {
	return slices.ContainsFunc(ident.ChannelActions, func(a ident.Action) bool { return can(a, channelID) })
}
