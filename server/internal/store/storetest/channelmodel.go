package storetest

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/server/internal/channel"
)

// channelModel implements the contract of channel.Store in memory.
type channelModel struct {
	rows    map[string]*channel.Row
	members map[[2]string]*memberModel // by channel and user
}

// memberModel is a user's state in a channel. Role is 0 if they are neither member nor follower.
// left is the highest seq that a removal named.
type memberModel struct {
	channel.Member
	left int64
}

func (m *channelModel) ensure(id string, n int64) channel.Row {
	if m.rows[id] == nil {
		m.rows[id] = &channel.Row{ChannelID: id, CreatedAt: at(n)}
	}
	return *m.rows[id]
}

func (m *channelModel) create(row channel.Row, userIDs []string) bool {
	if m.rows[row.ChannelID] != nil {
		return false
	}
	m.rows[row.ChannelID] = &row
	for _, id := range userIDs {
		role := channel.RoleMember
		if id == row.CreatedBy {
			role = channel.Owner
		}
		*m.user(row.ChannelID, id) = memberModel{Member: channel.Member{ChannelID: row.ChannelID, UserID: id, Role: role, JoinedAt: row.CreatedAt}}
	}
	return true
}

func (m *channelModel) user(id, userID string) *memberModel {
	key := [2]string{id, userID}
	if m.members[key] == nil {
		m.members[key] = &memberModel{Member: channel.Member{ChannelID: id, UserID: userID}}
	}
	return m.members[key]
}

func (u *memberModel) join(role channel.Role, n int64) {
	if u.Role < role {
		u.Role, u.JoinedAt = role, at(n)
	}
}

func (u *memberModel) move(to channel.Cursor) {
	if to.Seq > u.Seq {
		u.Cursor = to
	}
}

func (m *channelModel) mark(id, userID string, to channel.Cursor, join bool, n int64) (channel.Cursor, bool) {
	u := m.user(id, userID)
	if u.Role == 0 && join && !m.ensure(id, n).MembersOnly {
		u.join(channel.Follower, n)
	}
	if u.Role == 0 {
		return channel.Cursor{}, false
	}
	u.move(to)
	return u.Cursor, true
}

func (m *channelModel) advance(move channel.Advance, n int64) {
	m.ensure(move.ChannelID, n)
	row := m.rows[move.ChannelID]
	for userID, to := range move.Senders {
		u := m.user(move.ChannelID, userID)
		if !row.MembersOnly && to.Seq > u.left {
			u.join(channel.Follower, n)
		}
		if !row.MembersOnly || u.Role > 0 {
			u.move(to)
		}
	}
	if move.Head > row.Head {
		row.Head, row.Count = move.Head, move.Count
	}
	row.LastMessage = max(row.LastMessage, move.LastMessage)
}

// list returns the members and followers for which keep returns true, sorted by channel and user.
func (m *channelModel) list(keep func(channel.Member) bool) []channel.Member {
	var found []channel.Member
	for _, u := range m.members {
		if u.Role > 0 && keep(u.Member) {
			found = append(found, u.Member)
		}
	}
	slices.SortFunc(found, func(a, b channel.Member) int {
		return cmp.Or(cmp.Compare(a.ChannelID, b.ChannelID), cmp.Compare(a.UserID, b.UserID))
	})
	return found
}
