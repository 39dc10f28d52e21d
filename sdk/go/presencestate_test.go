package parley

import (
	"errors"
	"fmt"
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestRevisionsOrderStates applies states of one stream out of order, and those of an earlier
// stream late. The newest one of the current stream counts.
func TestRevisionsOrderStates(t *testing.T) {
	t.Parallel()
	p := &Presence{
		users: make(map[string]*watchedUser), channels: make(map[string]*watchedChannel), refusals: make(map[watchKey]error),
		changed: make(chan struct{}, 1),
	}
	p.addUsers([]string{"ann"})
	p.addChannels([]string{"room"})
	send := func(on *presenceStream, revision int64, platforms ...Platform) {
		user := &parleyv1.UserPresence{UserId: "ann", Revision: revision}
		for _, platform := range platforms {
			user.Platforms = append(user.Platforms, &parleyv1.PlatformPresence{Platform: platform})
		}
		p.apply(on, &parleyv1.PresenceUpdate{Users: []*parleyv1.UserPresence{user}, Channels: []*parleyv1.ChannelPresence{{
			ChannelId: "room", Revision: revision, OnlineCount: 1, MemberCount: 1, Complete: true, Online: []*parleyv1.UserPresence{user},
		}}})
	}
	want := func(what string, platform Platform) {
		t.Helper()
		user, _ := p.User("ann")
		room, _ := p.Channel("room")
		if len(user.GetPlatforms()) != 1 || user.GetPlatforms()[0].GetPlatform() != platform || user.GetRevision() != 0 {
			t.Errorf("%s: the user is %v", what, user)
		}
		if len(room.GetOnline()) != 1 || room.GetOnline()[0].GetPlatforms()[0].GetPlatform() != platform {
			t.Errorf("%s: the channel is %v", what, room)
		}
	}
	first, _ := p.begin(t.Context(), nil)
	send(first, 7, PlatformIOS)
	send(first, 6, PlatformWeb)
	want("a lower revision", PlatformIOS)
	second, _ := p.begin(t.Context(), nil)
	send(first, 8, PlatformWeb)
	want("an earlier stream", PlatformIOS)
	send(second, 1, PlatformLinux)
	want("the first state of a new stream", PlatformLinux)
}

// TestChangesBeforeTheFirstState applies states of a channel that overtook the answer of
// WatchChannel, which has the first one.
func TestChangesBeforeTheFirstState(t *testing.T) {
	t.Parallel()
	user := func(id string, platforms ...Platform) *parleyv1.UserPresence {
		u := &parleyv1.UserPresence{UserId: id}
		for _, platform := range platforms {
			u.Platforms = append(u.Platforms, &parleyv1.PlatformPresence{Platform: platform})
		}
		return u
	}
	complete := &ChannelPresence{
		ChannelId: "room", Revision: 5, OnlineCount: 2, MemberCount: 3, Complete: true,
		Online: []*UserPresence{user("ann", PlatformIOS), user("bob", PlatformWeb)},
	}
	older := &ChannelPresence{ChannelId: "room", Revision: 4, OnlineCount: 1, MemberCount: 3, Changed: []*UserPresence{user("ann")}}
	newer := &ChannelPresence{
		ChannelId: "room", Revision: 6, OnlineCount: 2, MemberCount: 3,
		Changed: []*UserPresence{user("bob"), user("carl", PlatformLinux)},
	}
	lost := func(revision int64) *ChannelPresence {
		return &ChannelPresence{ChannelId: "room", Revision: revision, Lost: true}
	}
	for name, c := range map[string]struct {
		early []*ChannelPresence
		want  string
	}{
		"changes":                {[]*ChannelPresence{older, newer}, "ann carl 2 of 3"},
		"older changes":          {[]*ChannelPresence{older}, "ann bob 2 of 3"},
		"a loss":                 {[]*ChannelPresence{newer, lost(7)}, "channel_lost"},
		"an earlier watch's end": {[]*ChannelPresence{lost(4), newer}, "ann carl 2 of 3"},
	} {
		p := &Presence{
			users: make(map[string]*watchedUser), channels: make(map[string]*watchedChannel), refusals: make(map[watchKey]error),
			changed: make(chan struct{}, 1),
		}
		current, _ := p.begin(t.Context(), nil)
		p.addChannels([]string{"room"})
		for _, state := range c.early {
			p.apply(current, &parleyv1.PresenceUpdate{Channels: []*ChannelPresence{state}})
		}
		if event, found, _ := p.take(); found {
			t.Errorf("%s: %v is delivered before the first state", name, event)
		}
		current.channels["room"] = true
		p.apply(current, &parleyv1.PresenceUpdate{Channels: []*ChannelPresence{complete}})
		event, _, _ := p.take()
		got := event.Kind.String()
		if event.Kind == PresenceOfChannel {
			got = ""
			for _, u := range event.Channel.GetOnline() {
				got += u.GetUserId() + " "
			}
			got += fmt.Sprintf("%d of %d", event.Channel.GetOnlineCount(), event.Channel.GetMemberCount())
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestLostReason ends the watch of a channel for each reason. The event has an error unless the
// membership ended.
func TestLostReason(t *testing.T) {
	t.Parallel()
	for reason, want := range map[parleyv1.ErrorReason]error{
		parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED: nil, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER: nil,
		parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED: ErrLimitExceeded, parleyv1.ErrorReason_ERROR_REASON_NODE_FULL: ErrNodeFull,
	} {
		p := &Presence{
			users: make(map[string]*watchedUser), channels: make(map[string]*watchedChannel), refusals: make(map[watchKey]error),
			changed: make(chan struct{}, 1),
		}
		current, _ := p.begin(t.Context(), nil)
		p.addChannels([]string{"room"})
		current.channels["room"] = true
		for _, state := range []*ChannelPresence{
			{ChannelId: "room", Revision: 1, Complete: true}, {ChannelId: "room", Revision: 2, Lost: true, LostReason: reason},
		} {
			p.apply(current, &parleyv1.PresenceUpdate{Channels: []*ChannelPresence{state}})
		}
		event, _, _ := p.take()
		if event.Kind != PresenceChannelLost || !errors.Is(event.Err, want) {
			t.Errorf("%s: %v, want channel_lost with %v", reason, event, want)
		}
	}
}

// TestTooManyEarlyChanges has a server send changes of a channel without its first state. The
// presence leaves the stream before it keeps too many.
func TestTooManyEarlyChanges(t *testing.T) {
	t.Parallel()
	p := &Presence{
		users: make(map[string]*watchedUser), channels: make(map[string]*watchedChannel), refusals: make(map[watchKey]error),
		changed: make(chan struct{}, 1),
	}
	p.addChannels([]string{"room"})
	left := 0
	current, _ := p.begin(t.Context(), func(error) { left++ })
	for i := range maxEarly/2 + 1 {
		if left > 0 {
			t.Fatalf("the stream was left after %d changes", i)
		}
		changed := []*UserPresence{{UserId: "ann"}}
		p.apply(current, &parleyv1.PresenceUpdate{Channels: []*ChannelPresence{{ChannelId: "room", Revision: int64(i), MemberCount: 3, Changed: changed}}})
	}
	if left != 1 {
		t.Errorf("the stream was left %d times", left)
	}
}
