package rpc

import (
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/presence"
)

// updateBytes bounds the states in one PresenceUpdate, in bytes. A single channel may be larger.
const updateBytes = 1 << 20

func userToWire(u *presence.UserState) *parleyv1.UserPresence {
	w := &parleyv1.UserPresence{UserId: u.UserID, Revision: u.Revision}
	if u.State.Online() {
		w.Platforms = make([]*parleyv1.PlatformPresence, 0, u.State.Len())
	}
	for p, background := range u.State.All {
		w.Platforms = append(w.Platforms, &parleyv1.PlatformPresence{Platform: parleyv1.Platform(p), Background: background})
	}
	return w
}

func usersToWire(users []presence.UserState) []*parleyv1.UserPresence {
	ws := make([]*parleyv1.UserPresence, len(users))
	for i := range users {
		ws[i] = userToWire(&users[i])
	}
	return ws
}

func channelPresenceToWire(c *presence.ChannelState) *parleyv1.ChannelPresence {
	w := &parleyv1.ChannelPresence{
		ChannelId: c.ChannelID, OnlineCount: int32(c.Online), MemberCount: int32(c.Members), //nolint:gosec // far fewer users
		Complete: c.Complete, Revision: c.Revision,
	}
	if c.Lost != "" {
		w.Lost, w.LostReason = true, reasonOf(c.Lost)
	}
	if c.Complete {
		w.Online = usersToWire(c.Users)
	} else {
		w.Changed = usersToWire(c.Users)
	}
	return w
}

// updatesToWire converts an update. If it is larger than updateBytes, it becomes several. It
// returns at least one.
func updatesToWire(u *presence.Update) []*parleyv1.PresenceUpdate {
	w := &parleyv1.PresenceUpdate{Lagging: u.Lagging}
	updates, size := []*parleyv1.PresenceUpdate{w}, 0
	grow := func(state proto.Message) {
		n := proto.Size(state)
		if size > 0 && size+n > updateBytes {
			w, size = &parleyv1.PresenceUpdate{}, 0
			updates = append(updates, w)
		}
		size += n
	}
	for i := range u.Users {
		user := userToWire(&u.Users[i])
		grow(user)
		w.Users = append(w.Users, user)
	}
	for i := range u.Channels {
		channel := channelPresenceToWire(&u.Channels[i])
		grow(channel)
		w.Channels = append(w.Channels, channel)
	}
	return updates
}
