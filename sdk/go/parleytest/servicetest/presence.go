package servicetest

import (
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The platforms that the scenarios use.
const (
	ios     = parleyv1.Platform_PLATFORM_IOS
	windows = parleyv1.Platform_PLATFORM_WINDOWS
	web     = parleyv1.Platform_PLATFORM_WEB
)

var noStream = refusal{connect.CodeNotFound, "STREAM_NOT_FOUND", "", 0}

// presenceScenarios returns the scenarios of presence by name.
func presenceScenarios() map[string]func(*env) {
	return map[string]func(*env){
		"presence":                       presence,
		"presence on one platform":       presenceOnOnePlatform,
		"presence in the background":     presenceInBackground,
		"presence after a reconnect":     presenceAfterReconnect,
		"presence after Disconnect":      presenceAfterDisconnect,
		"presence on a Subscribe stream": presenceOnSubscribe,
		"invisible":                      invisible,
		"watch users":                    watchUsers,
		"watch refused":                  watchRefused,
		"watch a channel":                watchChannel,
		"watch a channel refused":        watchChannelRefused,
		"connect refused":                connectRefused,
		"presence of many users":         presenceOfMany,
		"list of online users":           onlineUsers,
		"actions of presence":            presenceActions,
		"an ended stream":                endedStream,
		"limit of watched users":         presenceLimits,
		"sign out":                       signOut,
	}
}

// watcher is a live stream with presence: a Connect stream, or a Subscribe stream whose request has
// presence.
type watcher struct {
	e    *env
	id   string
	info *parleyv1.PresenceInfo
	// receive waits for the next frame with presence.
	receive func() *parleyv1.PresenceUpdate
	close   context.CancelFunc

	// states are the received states of each user, without repeats in a row. revisions are the last
	// ones of users and channels.
	states    map[string][]string
	revisions map[string]int64
	channels  map[string]*channelView
}

// channelView is what the watcher knows of a channel: the numbers and the members that are online.
type channelView struct {
	online, members int32
	users           map[string]string
}

// on returns the request that makes a device of the given platform online and watches users. The
// device has the name of the platform.
func on(platform parleyv1.Platform, watch ...*caller) *parleyv1.ConnectRequest {
	req := &parleyv1.ConnectRequest{Platform: platform, DeviceId: platform.String()}
	for _, c := range watch {
		req.Watch = append(req.Watch, c.user)
	}
	return req
}

// connect opens a Connect stream and reads its first frame. The stream ends with the scenario.
func (e *env) connect(c *caller, req *parleyv1.ConnectRequest) *watcher {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	stream, err := c.presence.Connect(ctx, req)
	e.no(err)
	e.Cleanup(func() { _ = stream.Close() })
	if !stream.Receive() {
		e.Fatalf("no first frame: %v", stream.Err())
	}
	first := stream.Msg().GetInfo()
	w := e.watcher(first.GetStream(), first.GetPresence())
	w.close = func() { cancel(); _ = stream.Close() }
	w.receive = func() *parleyv1.PresenceUpdate {
		e.Helper()
		for stream.Receive() {
			if update := stream.Msg().GetPresence(); update != nil {
				return update
			}
		}
		e.Fatalf("the stream ended: %v", stream.Err())
		return nil
	}
	for _, user := range req.GetWatch() {
		for len(w.states[user]) == 0 { // a server that has just started does not know them yet
			w.apply(w.receive())
		}
	}
	return w
}

func (e *env) watcher(stream *parleyv1.StreamInfo, info *parleyv1.PresenceInfo) *watcher {
	e.Helper()
	if stream.GetStreamId() == "" || stream.GetHeartbeatInterval().AsDuration() <= 0 || info == nil {
		e.Fatalf("the first frame: %v %v", stream, info)
	}
	w := &watcher{
		e: e, id: stream.GetStreamId(), info: info, states: make(map[string][]string), revisions: make(map[string]int64),
		channels: make(map[string]*channelView),
	}
	w.apply(info.GetPresence())
	return w
}

// apply records the states of an update. Their revisions must increase.
func (w *watcher) apply(update *parleyv1.PresenceUpdate) {
	w.e.Helper()
	for _, user := range update.GetUsers() {
		id := user.GetUserId()
		if user.GetRevision() <= w.revisions[id] {
			w.e.Errorf("user %s: revision %d after %d", id, user.GetRevision(), w.revisions[id])
		}
		w.revisions[id] = user.GetRevision()
		w.record(user)
	}
	for _, ch := range update.GetChannels() {
		w.applyChannel(ch)
	}
}

func (w *watcher) record(user *parleyv1.UserPresence) {
	id, state := user.GetUserId(), shown(user)
	if known := w.states[id]; len(known) == 0 || known[len(known)-1] != state {
		w.states[id] = append(known, state)
	}
}

func (w *watcher) applyChannel(ch *parleyv1.ChannelPresence) {
	w.e.Helper()
	id := ch.GetChannelId()
	if ch.GetRevision() <= w.revisions["channel "+id] {
		w.e.Errorf("channel %s: revision %d after %d", id, ch.GetRevision(), w.revisions["channel "+id])
	}
	w.revisions["channel "+id] = ch.GetRevision()
	view := w.channels[id]
	if view == nil || ch.GetComplete() {
		if view == nil && !ch.GetComplete() {
			w.e.Errorf("channel %s: the first state is not complete: %v", id, ch)
		}
		view = &channelView{users: make(map[string]string)}
		w.channels[id] = view
	}
	view.online, view.members = ch.GetOnlineCount(), ch.GetMemberCount()
	for _, user := range append(ch.GetOnline(), ch.GetChanged()...) {
		if state := shown(user); state == "offline" {
			delete(view.users, user.GetUserId())
		} else {
			view.users[user.GetUserId()] = state
		}
	}
	if int(view.online) != len(view.users) {
		w.e.Errorf("channel %s: online_count %d, but online are %v", id, view.online, view.users)
	}
}

// shown returns a user's state as text: the platforms, each with "(b)" if it is in the background,
// or "offline".
func shown(user *parleyv1.UserPresence) string {
	if len(user.GetPlatforms()) == 0 {
		return "offline"
	}
	var all []string
	for _, p := range user.GetPlatforms() {
		name := strings.ToLower(strings.TrimPrefix(p.GetPlatform().String(), "PLATFORM_"))
		if p.GetBackground() {
			name += "(b)"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// until reads frames until the user's last state is the given one.
func (w *watcher) until(c *caller, state string) {
	w.e.Helper()
	for {
		if known := w.states[c.user]; len(known) > 0 && known[len(known)-1] == state {
			return
		}
		w.apply(w.receive())
	}
}

// wantStates reports an error if the states of a user so far are not the given ones.
func (w *watcher) wantStates(c *caller, states ...string) {
	w.e.Helper()
	if !slices.Equal(w.states[c.user], states) {
		w.e.Errorf("states of %s: got %q, want %q", c.user, w.states[c.user], states)
	}
}

// presence makes users online and offline, with two watchers.
func presence(e *env) {
	carl := e.as(e.name("carl"))
	first, second := e.connect(e.bob, on(web, e.ann, e.ann, carl)), e.connect(carl, on(web, e.ann, e.bob))
	id := first.info.GetConnectionId()
	if id == "" || first.info.GetLoginToken() == "" || id == second.info.GetConnectionId() {
		e.Errorf("info %v and %v", first.info, second.info)
	}
	first.until(e.ann, "offline")
	first.until(carl, "web")
	second.until(e.bob, "web")
	phone := e.connect(e.ann, on(ios))
	first.until(e.ann, "ios")
	desktop := e.connect(e.ann, on(windows))
	first.until(e.ann, "ios windows")
	second.until(e.ann, "ios windows")
	phone.close()
	first.until(e.ann, "windows")
	desktop.close()
	first.until(e.ann, "offline")
	second.until(e.ann, "offline")
	first.wantStates(e.ann, "offline", "ios", "ios windows", "windows", "offline")
	first.wantStates(carl, "offline", "web")
}

// presenceOnOnePlatform opens two streams on one platform. The platform is online until the second
// one ends.
func presenceOnOnePlatform(e *env) {
	w := e.connect(e.bob, on(web, e.ann))
	first := e.connect(e.ann, on(ios))
	w.until(e.ann, "ios")
	other := on(ios)
	other.DeviceId = "another-device"
	second := e.connect(e.ann, other)
	first.close()
	marker := e.connect(e.ann, on(web))
	w.until(e.ann, "ios web")
	marker.close()
	w.until(e.ann, "ios")
	second.close()
	w.until(e.ann, "offline")
	w.wantStates(e.ann, "offline", "ios", "ios web", "ios", "offline")
}

func presenceInBackground(e *env) {
	w := e.connect(e.bob, on(web, e.ann))
	req := on(ios)
	req.Background = true
	phone := e.connect(e.ann, req)
	w.until(e.ann, "ios(b)")
	background := func(s *watcher, on bool) {
		e.no(errOf(e.ann.presence.SetBackground(e.ctx, &parleyv1.SetBackgroundRequest{StreamId: s.id, Background: on})))
	}
	for range 2 {
		background(phone, false)
	}
	w.until(e.ann, "ios")
	desktop := e.connect(e.ann, on(windows))
	w.until(e.ann, "ios windows")
	background(desktop, true)
	w.until(e.ann, "ios windows(b)")
	other := on(windows)
	other.DeviceId = "another-device"
	e.connect(e.ann, other)
	w.until(e.ann, "ios windows")
	background(phone, true)
	w.until(e.ann, "ios(b) windows")
	w.wantStates(e.ann, "offline", "ios(b)", "ios", "ios windows", "ios windows(b)", "ios windows", "ios(b) windows")
}

// presenceAfterReconnect ends the streams of two users, of which one returns at once. That one is
// never shown offline.
func presenceAfterReconnect(e *env) {
	carl, dora := e.as(e.name("carl")), e.as(e.name("dora"))
	w := e.connect(e.bob, on(web, e.ann, carl, dora))
	stays, goes := e.connect(e.ann, on(web)), e.connect(carl, on(web))
	w.until(e.ann, "web")
	w.until(carl, "web")
	stays.close()
	goes.close()
	again := on(web)
	again.LoginToken = stays.info.GetLoginToken()
	if info := e.connect(e.ann, again).info; info.GetLoginToken() == "" || info.GetConnectionId() == "" {
		e.Errorf("info %v", info)
	}
	w.until(carl, "offline")
	e.connect(dora, on(web))
	w.until(dora, "web")
	w.wantStates(e.ann, "offline", "web")
}

// presenceAfterDisconnect compares a user who disconnects with one whose stream broke before. The
// first is offline at once, the other later.
func presenceAfterDisconnect(e *env) {
	carl := e.as(e.name("carl"))
	w := e.connect(e.bob, on(web, e.ann, carl))
	leaves, breaks := e.connect(e.ann, on(web)), e.connect(carl, on(web))
	w.until(e.ann, "web")
	w.until(carl, "web")
	breaks.close()
	for range 2 {
		e.no(errOf(e.ann.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: leaves.id})))
	}
	w.until(e.ann, "offline")
	w.wantStates(carl, "offline", "web")
	w.until(carl, "offline")
	e.refused("watch on the stream", errOf(e.ann.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: leaves.id})), noStream)
}

// presenceOnSubscribe uses one stream for a channel and presence.
func presenceOnSubscribe(e *env) {
	room := e.name("room")
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	stream, err := e.bob.Subscribe(ctx, &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{from(room, 0)}, Presence: on(web, e.ann),
	})
	e.no(err)
	e.Cleanup(func() { _ = stream.Close() })
	sub := &subscription{e: e, stream: stream}
	var info *parleyv1.StreamInfo
	if stream.Receive() {
		info = stream.Msg().GetInfo()
	}
	if info == nil || !stream.Receive() || stream.Msg().GetPresenceInfo() == nil {
		e.Fatalf("the first frames: %v, then %v (%v)", info, stream.Msg(), stream.Err())
	}
	w := e.watcher(info, stream.Msg().GetPresenceInfo())
	w.receive = func() *parleyv1.PresenceUpdate {
		for stream.Receive() {
			sub.events = append(sub.events, stream.Msg().GetEvents().GetEvents()...)
			if update := stream.Msg().GetPresence(); update != nil {
				return update
			}
		}
		e.Fatalf("the stream ended: %v", stream.Err())
		return nil
	}
	other := e.connect(e.ann, on(web, e.bob))
	other.until(e.bob, "web")
	w.until(e.ann, "web")
	e.say(e.ann, room, "one")
	sub.want("state 0..0 oldest 1 head 0 count 0 recovered true", "sent 1..1 #1 one")
	e.no(errOf(e.bob.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: w.id})))
	other.until(e.bob, "offline")
	e.say(e.ann, room, "two")
	sub.want("sent 2..2 #2 two")
	e.refused("watch without presence",
		errOf(e.bob.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: []string{e.ann.user}})), noStream)
	plain := e.subscribe(e.bob, live(room))
	e.refused("watch on a stream that never had presence",
		errOf(e.bob.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: plain.id, Add: []string{e.ann.user}})), noStream)
}

// invisible watches without being online.
func invisible(e *env) {
	w := e.connect(e.bob, on(web, e.ann))
	hidden := e.connect(e.ann, &parleyv1.ConnectRequest{Invisible: true, Watch: []string{e.bob.user}})
	if hidden.info.GetConnectionId() != "" || hidden.info.GetLoginToken() != "" {
		e.Errorf("info %v", hidden.info)
	}
	hidden.until(e.bob, "web")
	e.connect(e.ann, on(ios))
	w.until(e.ann, "ios")
	w.wantStates(e.ann, "offline", "ios")
}
