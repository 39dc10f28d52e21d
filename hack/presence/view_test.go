package main

import (
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// frameOf returns a frame that shows a user online or offline.
func frameOf(id string, online bool, revision int64) *parleyv1.ConnectResponse {
	u := &parleyv1.UserPresence{UserId: id, Revision: revision}
	if online {
		u.Platforms = []*parleyv1.PlatformPresence{{Platform: platform}}
	}
	return &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Presence{Presence: &parleyv1.PresenceUpdate{Users: []*parleyv1.UserPresence{u}}}}
}

// TestFalseOffline checks which users a view counts as shown offline wrongly.
func TestFalseOffline(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		liveFor time.Duration // 0: no live stream
		broken  time.Duration // ago; 0: never
		down    bool
		wrong   int
	}{
		"online for a while":                 {liveFor: time.Minute, wrong: 1},
		"offline":                            {},
		"online since a moment":              {liveFor: late / 2},
		"on a node that is down":             {liveFor: time.Minute, broken: time.Second, down: true},
		"on a node that failed since":        {liveFor: time.Minute, broken: time.Second},
		"on a node that failed before":       {liveFor: time.Minute, broken: time.Hour, wrong: 1},
		"on a node that failed much earlier": {liveFor: late + time.Second, broken: 2 * late, wrong: 1},
	} {
		f := new(faults)
		if f.down[1] = c.down; c.broken > 0 {
			f.broken[1] = now.Add(-c.broken)
		}
		crowd := &crowd{faults: f, ids: []string{"ann"}, users: make(map[string]*user)}
		u := &user{crowd: crowd, id: "ann", node: 1}
		if c.liveFor > 0 {
			u.liveSince = now.Add(-c.liveFor)
		}
		crowd.users["ann"] = u
		v := &view{crowd: crowd, states: make(map[string]string)}
		s := &viewStream{view: v, live: true, revisions: make(map[string]int64)}
		s.take(frameOf("ann", true, 1))
		if s.take(frameOf("ann", false, 1)); len(v.falseOffline) > 0 {
			t.Errorf("%s: a state of the same revision was shown", name)
		}
		s.take(frameOf("ann", false, 2))
		s.take(frameOf("ann", false, 3))
		if len(v.falseOffline) != c.wrong {
			t.Errorf("%s: %d times shown offline wrongly, want %d", name, len(v.falseOffline), c.wrong)
		}
		if v.streams = []*viewStream{s}; v.differs(nil) != "" || v.differs(map[string]bool{"ann": true}) == "" {
			t.Errorf("%s: the view shows ann as %q", name, v.states["ann"])
		}
	}
}

// TestChannelView checks that a complete state of a channel replaces the states of all its members,
// and that others change only some.
func TestChannelView(t *testing.T) {
	t.Parallel()
	c := &crowd{faults: new(faults), ids: []string{"ann", "ben"}, users: make(map[string]*user)}
	v := &view{crowd: c, states: make(map[string]string)}
	s := &viewStream{
		view: v, live: true, members: map[string][]string{"day": c.ids}, revisions: make(map[string]int64), counts: make(map[string]int),
	}
	v.streams = []*viewStream{s}
	online := func(id string) []*parleyv1.UserPresence {
		return frameOf(id, true, 0).GetPresence().GetUsers()
	}
	for i, step := range []struct {
		state *parleyv1.ChannelPresence
		want  map[string]bool
	}{
		{&parleyv1.ChannelPresence{Complete: true, OnlineCount: 1, Online: online("ann")}, map[string]bool{"ann": true}},
		{&parleyv1.ChannelPresence{OnlineCount: 2, Changed: online("ben")}, map[string]bool{"ann": true, "ben": true}},
		{&parleyv1.ChannelPresence{Complete: true, OnlineCount: 1, Online: online("ben")}, map[string]bool{"ben": true}},
	} {
		step.state.ChannelId, step.state.Revision = "day", int64(i)+1
		s.take(&parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Presence{Presence: &parleyv1.PresenceUpdate{
			Channels: []*parleyv1.ChannelPresence{step.state},
		}}})
		if text := v.differs(step.want); text != "" {
			t.Errorf("state %d: %s", i+1, text)
		}
		if v.differs(map[string]bool{}) == "" {
			t.Errorf("state %d: no difference from nobody being online", i+1)
		}
	}
}
