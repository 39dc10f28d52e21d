package servicetest

import (
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// watch calls UpdateWatch and records the states in its response. It returns these as text, in
// their order, by the first part of each user id.
func (w *watcher) watch(c *caller, add, remove []*caller) string {
	w.e.Helper()
	req := &parleyv1.UpdateWatchRequest{StreamId: w.id}
	for _, u := range add {
		req.Add = append(req.Add, u.user)
	}
	for _, u := range remove {
		req.Remove = append(req.Remove, u.user)
	}
	r, err := c.presence.UpdateWatch(w.e.ctx, req)
	w.e.no(err)
	return w.e.text(r.GetPresence())
}

// text returns states in their order, by the first part of each user id.
func (e *env) text(users []*parleyv1.UserPresence) string {
	var all []string
	for _, u := range users {
		all = append(all, strings.TrimSuffix(u.GetUserId(), "-"+e.id)+" "+shown(u))
	}
	return strings.Join(all, ", ")
}

func watchUsers(e *env) {
	carl, dora := e.as(e.name("carl")), e.as(e.name("dora"))
	w, other := e.connect(e.bob, on(web)), e.connect(dora, on(web, e.ann))
	e.connect(e.ann, on(ios))
	other.until(e.ann, "ios")
	var got string
	e.eventually(func() string {
		if got = w.watch(e.bob, []*caller{carl, e.ann, carl}, nil); got != "carl offline, ann ios" {
			return got
		}
		return ""
	})
	desktop := e.connect(e.ann, on(windows))
	w.until(e.ann, "ios windows")
	// A user in both lists is added.
	equal(e, "added and removed", w.watch(e.bob, []*caller{e.ann}, []*caller{e.ann, dora}), "ann ios windows")
	desktop.close()
	w.until(e.ann, "ios")
	equal(e, "removed", w.watch(e.bob, nil, []*caller{e.ann, dora}), "")
	e.connect(e.ann, on(web))
	other.until(e.ann, "ios web")
	e.connect(carl, on(web))
	w.until(carl, "web")
	if slices.Contains(w.states[e.ann.user], "ios web") {
		e.Error("a removed user's state was sent")
	}
}

func watchRefused(e *env) {
	w := e.connect(e.bob, on(web))
	update := func(c *caller, req *parleyv1.UpdateWatchRequest) error {
		return errOf(c.presence.UpdateWatch(e.ctx, req))
	}
	e.refused("no stream", update(e.bob, &parleyv1.UpdateWatchRequest{StreamId: "none"}), noStream)
	e.refused("another user's", update(e.ann, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: []string{"x"}}), noStream)
	e.refused("another user's background",
		errOf(e.ann.presence.SetBackground(e.ctx, &parleyv1.SetBackgroundRequest{StreamId: w.id})), noStream)
	e.refused("another user's channels", errOf(e.ann.presence.UnwatchChannel(e.ctx, &parleyv1.UnwatchChannelRequest{
		StreamId: w.id, ChannelId: "room",
	})), noStream)
	e.no(errOf(e.ann.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: w.id})))
	e.no(update(e.bob, &parleyv1.UpdateWatchRequest{StreamId: w.id}))
	e.refused("stream_id", update(e.bob, &parleyv1.UpdateWatchRequest{}), invalid("stream_id", 0))
	e.refused("add", update(e.bob, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: e.users(501)}), invalid("add", 500))
	e.refused("remove", update(e.bob, &parleyv1.UpdateWatchRequest{StreamId: w.id, Remove: e.users(1001)}), invalid("remove", 1000))
	e.refused("a user id", update(e.bob, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: []string{"ann", "a b"}}), invalid("add[1]", 0))
}

// users returns n user ids that no scenario uses.
func (e *env) users(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("user-%d-%s", i, e.id)
	}
	return ids
}

func connectRefused(e *env) {
	connectTo := func(change func(req *parleyv1.ConnectRequest)) error {
		req := on(web)
		change(req)
		stream, err := e.bob.presence.Connect(e.ctx, req)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		if stream.Receive() {
			e.Errorf("frame %v", stream.Msg())
			return nil
		}
		return stream.Err()
	}
	tooMany := func(field string, limit int64) refusal {
		return refusal{connect.CodeResourceExhausted, "LIMIT_EXCEEDED", field, limit}
	}
	for name, c := range map[string]struct {
		change func(req *parleyv1.ConnectRequest)
		want   refusal
	}{
		"no platform":    {func(r *parleyv1.ConnectRequest) { r.Platform = 0 }, invalid("platform", 0)},
		"platform":       {func(r *parleyv1.ConnectRequest) { r.Platform = 99 }, invalid("platform", 0)},
		"no device":      {func(r *parleyv1.ConnectRequest) { r.DeviceId = "" }, invalid("device_id", 0)},
		"device":         {func(r *parleyv1.ConnectRequest) { r.DeviceId = "a b" }, invalid("device_id", 0)},
		"a user id":      {func(r *parleyv1.ConnectRequest) { r.Watch = []string{"ann", ""} }, invalid("watch[1]", 0)},
		"a channel id":   {func(r *parleyv1.ConnectRequest) { r.WatchChannels = []string{"a/b"} }, invalid("watch_channels[0]", 0)},
		"login token":    {func(r *parleyv1.ConnectRequest) { r.LoginToken = strings.Repeat("x", 1025) }, invalid("login_token", 1024)},
		"many users":     {func(r *parleyv1.ConnectRequest) { r.Watch = e.users(1001) }, tooMany("watch", 1000)},
		"many channels":  {func(r *parleyv1.ConnectRequest) { r.WatchChannels = e.users(21) }, tooMany("watch_channels", 20)},
		"device of none": {func(r *parleyv1.ConnectRequest) { r.Invisible, r.DeviceId = true, "a b" }, invalid("device_id", 0)},
	} {
		e.refused(name, connectTo(c.change), c.want)
	}
	stream, err := e.bob.Subscribe(e.ctx, &parleyv1.SubscribeRequest{Presence: &parleyv1.ConnectRequest{DeviceId: "d"}})
	e.no(err)
	if stream.Receive() {
		e.Errorf("frame %v", stream.Msg())
	}
	e.refused("subscribe without a platform", stream.Err(), invalid("presence.platform", 0))
}

// presenceLimits fills a stream's watches. One more is refused and changes nothing; after a removal
// there is room again.
func presenceLimits(e *env) {
	all := e.users(1001)
	req := on(web)
	req.Watch = append(slices.Clone(all[:1000]), all[0])
	w := e.connect(e.bob, req)
	update := func(add, remove []string) error {
		return errOf(e.bob.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: add, Remove: remove}))
	}
	full := refusal{connect.CodeResourceExhausted, "LIMIT_EXCEEDED", "add", 1000}
	e.refused("one more", update(all[1000:], nil), full)
	e.refused("one more and a removal that is also added", update([]string{all[0], all[1000]}, all[:1]), full)
	e.no(update(all[:3], nil))
	e.no(update(all[1000:], all[:1]))
	e.refused("again full", update(all[:1], nil), full)
}

func presenceOfMany(e *env) {
	e.connect(e.ann, on(ios))
	req := on(web)
	req.Background = true
	e.connect(e.ann, req)
	nobody := e.name("nobody")
	ids := []string{nobody, e.ann.user, nobody, e.ann.user}
	e.eventually(func() string {
		r, err := e.bob.presence.GetPresence(e.ctx, &parleyv1.GetPresenceRequest{UserIds: ids})
		e.no(err)
		if got := e.text(r.GetPresence()); got != "nobody offline, ann ios web(b), nobody offline, ann ios web(b)" {
			return got
		}
		for _, u := range r.GetPresence() {
			equal(e, "revision", u.GetRevision(), 0)
		}
		return ""
	})
	get := func(ids ...string) error {
		return errOf(e.bob.presence.GetPresence(e.ctx, &parleyv1.GetPresenceRequest{UserIds: ids}))
	}
	e.refused("nobody", get(), invalid("user_ids", 1))
	e.refused("too many", get(e.users(501)...), invalid("user_ids", 500))
	e.refused("a user id", get("ann", ""), invalid("user_ids[1]", 0))
}

// onlineUsers lists all online users, also those of other scenarios. Each is on one page.
func onlineUsers(e *env) {
	want := make(map[string]string)
	w := e.connect(e.bob, on(web))
	var connected []*caller
	for i := range 7 {
		c := e.as(e.name(fmt.Sprint("user", i)))
		connected = append(connected, c)
		e.connect(c, on(ios))
		want[c.user] = "ios"
	}
	w.watch(e.bob, connected, nil)
	hidden := e.as(e.name("hidden"))
	e.connect(hidden, &parleyv1.ConnectRequest{Invisible: true})
	e.eventually(func() string {
		got, pages := make(map[string]string), 0
		for token := ""; pages == 0 || token != ""; pages++ {
			r, err := e.bob.presence.ListOnlineUsers(e.ctx, &parleyv1.ListOnlineUsersRequest{PageSize: 3, PageToken: token})
			e.no(err)
			if len(r.GetPresence()) > 3 {
				e.Errorf("a page of %d users", len(r.GetPresence()))
			}
			for _, u := range r.GetPresence() {
				if got[u.GetUserId()] != "" {
					e.Errorf("user %s is listed twice", u.GetUserId())
				}
				got[u.GetUserId()] = shown(u)
			}
			token = r.GetNextPageToken()
		}
		if got[hidden.user] != "" {
			e.Error("an invisible user is listed")
		}
		for user, state := range want {
			if got[user] != state {
				return fmt.Sprintf("%s is %q", user, got[user])
			}
		}
		return ""
	})
	list := func(c *caller, req *parleyv1.ListOnlineUsersRequest) error {
		return errOf(c.presence.ListOnlineUsers(e.ctx, req))
	}
	r, err := e.bob.presence.ListOnlineUsers(e.ctx, &parleyv1.ListOnlineUsersRequest{PageSize: 1})
	e.no(err)
	bad := refusal{connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID", "page_token", 0}
	e.refused("a page token", list(e.bob, &parleyv1.ListOnlineUsersRequest{PageToken: "2"}), bad)
	e.refused("another user's page token", list(e.ann, &parleyv1.ListOnlineUsersRequest{PageToken: r.GetNextPageToken()}),
		refusal{connect.CodePermissionDenied, "PAGE_TOKEN_FOREIGN", "page_token", 0})
	e.refused("the page size", list(e.bob, &parleyv1.ListOnlineUsersRequest{PageSize: -1}), invalid("page_size", 0))
}

// watchChannel follows the members of a channel, from the request and by a call.
func watchChannel(e *env) {
	room := e.name("room")
	carl, dora := e.as(e.name("carl")), e.as(e.name("dora"))
	e.create(room, e.bob, carl)
	e.connect(carl, on(ios))
	req := on(web)
	req.WatchChannels = []string{room, room}
	w := e.connect(e.bob, req)
	w.untilChannel(room, "2 of 3: bob web, carl ios")
	late := e.connect(e.ann, on(web))
	w.untilChannel(room, "3 of 3: ann web, bob web, carl ios")
	e.eventually(func() string {
		r, err := e.ann.presence.WatchChannel(e.ctx, &parleyv1.WatchChannelRequest{StreamId: late.id, ChannelId: room})
		e.no(err)
		if r.GetPresence() == nil {
			return "no state in the response"
		}
		delete(late.channels, room)
		late.applyChannel(r.GetPresence())
		return strings.TrimPrefix(late.channel(room), "3 of 3: ann web, bob web, carl ios")
	})
	e.connect(carl, on(windows))
	w.untilChannel(room, "3 of 3: ann web, bob web, carl ios windows")
	e.connect(dora, on(web))
	e.no(errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room, Members: usersOf(dora)})))
	w.untilChannel(room, "4 of 4: ann web, bob web, carl ios windows, dora web")
	late.untilChannel(room, "4 of 4: ann web, bob web, carl ios windows, dora web")
	for range 2 {
		e.no(errOf(e.ann.presence.UnwatchChannel(e.ctx, &parleyv1.UnwatchChannelRequest{StreamId: late.id, ChannelId: room})))
	}
	e.no(errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: room, UserIds: []string{carl.user}})))
	w.untilChannel(room, "3 of 3: ann web, bob web, dora web")
	late.watch(e.ann, []*caller{dora}, nil)
	e.connect(dora, on(ios))
	late.until(dora, "ios web")
	equal(e, "a channel that is not watched", late.channel(room), "4 of 4: ann web, bob web, carl ios windows, dora web")
}

// channel returns what the watcher knows of a channel as text.
func (w *watcher) channel(id string) string {
	view := w.channels[id]
	if view == nil {
		return "nothing"
	}
	var users []string
	for user, state := range view.users {
		users = append(users, strings.TrimSuffix(user, "-"+w.e.id)+" "+state)
	}
	slices.Sort(users)
	return fmt.Sprintf("%d of %d: %s", view.online, view.members, strings.Join(users, ", "))
}

// untilChannel reads frames until the channel's state is the given one.
func (w *watcher) untilChannel(id, state string) {
	w.e.Helper()
	for w.channel(id) != state {
		w.apply(w.receive())
	}
}

func watchChannelRefused(e *env) {
	open, room := e.name("open"), e.name("room")
	e.say(e.ann, open, "one")
	e.create(room)
	carl := e.as(e.name("carl"), "subscribe", "connect", "watch")
	w := e.connect(carl, on(web))
	watchOn := func(stream, channel string) error {
		return errOf(carl.presence.WatchChannel(e.ctx, &parleyv1.WatchChannelRequest{StreamId: stream, ChannelId: channel}))
	}
	watch := func(channel string) error { return watchOn(w.id, channel) }
	isOpen := func(field string) refusal { return refusal{connect.CodeFailedPrecondition, "CHANNEL_OPEN", field, 0} }
	stranger := func(field string) refusal { return refusal{connect.CodePermissionDenied, "NOT_MEMBER", field, 0} }
	e.refused("an open channel", watch(open), isOpen("channel_id"))
	e.refused("another's channel", watch(room), stranger("channel_id"))
	e.refused("another's channel on no stream", watchOn("none", room), stranger("channel_id"))
	theirs := e.name("theirs")
	e.create(theirs, carl)
	e.refused("no stream", watchOn("none", theirs), noStream)
	connectTo := func(c *caller, channels ...string) error {
		req := on(web)
		req.WatchChannels = channels
		stream, err := c.presence.Connect(e.ctx, req)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		if stream.Receive() {
			e.Errorf("frame %v", stream.Msg())
		}
		return stream.Err()
	}
	e.refused("connect to an open channel", connectTo(e.ann, room, open), isOpen("watch_channels[1]"))
	err := connectTo(carl, room)
	e.refused("connect to another's channel", err, stranger("watch_channels[0]"))
	if p := detailOf(err).GetPositions(); len(p) != 1 || p[0].GetChannelId() != room {
		e.Errorf("the refused channels: %v", p)
	}
}

func presenceActions(e *env) {
	no := func(field string) refusal {
		return refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", field, 0}
	}
	none, shows := e.as(e.name("none"), "subscribe"), e.as(e.name("shows"), "connect")
	sees, lists := e.as(e.name("sees"), "watch", "subscribe"), e.as(e.name("lists"), "list")
	refusedTo := func(what string, c *caller, req *parleyv1.ConnectRequest) {
		stream, err := c.presence.Connect(e.ctx, req)
		e.no(err)
		defer func() { _ = stream.Close() }()
		if stream.Receive() {
			e.Errorf("%s: frame %v", what, stream.Msg())
		}
		e.refused(what, stream.Err(), no(""))
	}
	refusedTo("connect with nothing", none, on(web))
	refusedTo("connect with watch", sees, on(web))
	refusedTo("watch with connect", shows, on(web, e.ann))
	refusedTo("invisible with connect", shows, &parleyv1.ConnectRequest{Invisible: true})
	w := e.connect(shows, on(web))
	update := func(c *caller) error {
		return errOf(c.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: w.id, Add: []string{e.ann.user}}))
	}
	e.refused("update with connect", update(shows), no(""))
	e.no(errOf(shows.presence.SetBackground(e.ctx, &parleyv1.SetBackgroundRequest{StreamId: w.id, Background: true})))
	hidden := e.connect(sees, &parleyv1.ConnectRequest{Invisible: true, Watch: []string{shows.user}})
	hidden.until(shows, "web(b)")
	e.refused("background with watch",
		errOf(sees.presence.SetBackground(e.ctx, &parleyv1.SetBackgroundRequest{StreamId: hidden.id})), no(""))
	e.no(errOf(sees.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: hidden.id})))
	get := func(c *caller) error {
		return errOf(c.presence.GetPresence(e.ctx, &parleyv1.GetPresenceRequest{UserIds: []string{e.ann.user}}))
	}
	e.no(get(sees))
	e.refused("get with list", get(lists), no(""))
	list := func(c *caller) error {
		return errOf(c.presence.ListOnlineUsers(e.ctx, &parleyv1.ListOnlineUsersRequest{}))
	}
	e.no(list(lists))
	e.refused("list with watch", list(sees), no(""))
	e.refused("disconnect with list", errOf(lists.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: w.id})), no(""))
}

// endedStream ends streams in both ways. Nothing of them is left.
func endedStream(e *env) {
	w := e.connect(e.bob, on(web, e.ann))
	broken, left := e.connect(e.ann, on(ios, e.bob)), e.connect(e.ann, on(windows, e.bob))
	w.until(e.ann, "ios windows")
	broken.close()
	e.no(errOf(e.ann.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: left.id})))
	w.until(e.ann, "offline")
	for _, id := range []string{broken.id, left.id} {
		e.refused("watch", errOf(e.ann.presence.UpdateWatch(e.ctx, &parleyv1.UpdateWatchRequest{StreamId: id, Add: []string{"x"}})), noStream)
		e.refused("background", errOf(e.ann.presence.SetBackground(e.ctx, &parleyv1.SetBackgroundRequest{StreamId: id})), noStream)
		e.no(errOf(e.ann.presence.Disconnect(e.ctx, &parleyv1.DisconnectRequest{StreamId: id})))
	}
	e.eventually(func() string {
		r, err := e.bob.presence.GetPresence(e.ctx, &parleyv1.GetPresenceRequest{UserIds: []string{e.ann.user}})
		e.no(err)
		return strings.TrimPrefix(e.text(r.GetPresence()), "ann offline")
	})
	for token := ""; ; {
		r, err := e.bob.presence.ListOnlineUsers(e.ctx, &parleyv1.ListOnlineUsersRequest{PageSize: 1000, PageToken: token})
		e.no(err)
		for _, u := range r.GetPresence() {
			if u.GetUserId() == e.ann.user {
				e.Errorf("a user without a stream is listed: %v", u)
			}
		}
		if token = r.GetNextPageToken(); token == "" {
			return
		}
	}
}
