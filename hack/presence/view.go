package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// watchedUsers and watchedChannels are the limits of one stream.
	watchedUsers    = 1000
	watchedChannels = 20
	// reopenAfter is the wait before a watcher opens a stream again.
	reopenAfter = 100 * time.Millisecond
)

// watcher is the subject of the streams that watch. It is a member of each channel.
const watcher = "watcher"

// views are the pictures of the watchers: two on each node, one of all users by name and one by the
// channels of their days. The watchers use the generated client, because the SDK merges states that
// are not read at once, and here every state counts.
type views struct {
	all    []*view
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// view is what the watchers on one node show of all users.
type view struct {
	name  string
	node  int
	crowd *crowd
	// times reports that the view measures the times of changes.
	times   bool
	streams []*viewStream

	mu     sync.Mutex // guards the fields below and those of the streams
	states map[string]string
	// frames and updates count the frames with states, and the states that differ from those before.
	frames, updates int
	// falseOffline are the states that showed a user offline who was surely online.
	falseOffline []falseOffline
}

// falseOffline is a state that showed a user offline who was surely online.
type falseOffline struct {
	view, user string
	at         time.Time
	// first is true if the state came in the first frame of a stream.
	first bool
}

// viewStream is one stream of a view, opened again whenever it ends.
type viewStream struct {
	view    *view
	client  parleyv1connect.PresenceServiceClient
	token   string
	request *parleyv1.ConnectRequest
	members map[string][]string // of the watched channels

	// The fields below are guarded by view.mu.

	// live is true while the stream has had its first frame and has not ended.
	live      bool
	lagging   bool
	revisions map[string]int64
	// counts are the numbers of members that are online, by channel.
	counts map[string]int
}

func watch(ctx context.Context, c *crowd, client *http.Client, token string, days []day) *views {
	ctx, cancel := context.WithCancel(ctx)
	v := &views{cancel: cancel}
	for node, addr := range c.fleet.Addresses() {
		byUser := &view{name: fmt.Sprintf("watchers of users on node %d", node), node: node, crowd: c, times: true}
		for part := range slices.Chunk(c.ids, watchedUsers) {
			byUser.add(&parleyv1.ConnectRequest{Invisible: true, Watch: part}, nil)
		}
		byChannel := &view{name: fmt.Sprintf("watchers of channels on node %d", node), node: node, crowd: c}
		for part := range slices.Chunk(days, watchedChannels) {
			r := &parleyv1.ConnectRequest{Invisible: true}
			members := make(map[string][]string)
			for _, d := range part {
				r.WatchChannels = append(r.WatchChannels, d.channel)
				members[d.channel] = d.users
			}
			byChannel.add(r, members)
		}
		for _, one := range []*view{byUser, byChannel} {
			one.states = make(map[string]string)
			v.all = append(v.all, one)
			for _, s := range one.streams {
				s.token = token
				s.client = parleyv1connect.NewPresenceServiceClient(client, "http://"+addr, connect.WithGRPC())
				v.done.Go(func() { s.run(ctx) })
			}
		}
	}
	return v
}

// createChannels creates a channel for each day, with its users and the watcher as members.
func createChannels(ctx context.Context, client *parley.Client, days []day) error {
	for _, d := range days {
		if _, err := client.CreateChannel(ctx, d.channel, parley.MembersOnly()); err != nil {
			return fmt.Errorf("create %s: %w", d.channel, err)
		}
		if err := client.AddMembers(ctx, d.channel, append([]string{watcher}, d.users...)...); err != nil {
			return fmt.Errorf("add members to %s: %w", d.channel, err)
		}
	}
	return nil
}

func (v *views) close() {
	v.cancel()
	v.done.Wait()
}

// figures returns the sums of the views' counts, and what was shown wrongly.
func (v *views) figures() (frames, updates int, falseOffline []falseOffline) {
	for _, one := range v.all {
		one.mu.Lock()
		frames += one.frames
		updates += one.updates
		falseOffline = append(falseOffline, one.falseOffline...)
		one.mu.Unlock()
	}
	return frames, updates, falseOffline
}

// differs describes the differences between the views and who is online, or returns "".
func (v *views) differs(online map[string]bool) string {
	for _, one := range v.all {
		if text := one.differs(online); text != "" {
			return one.name + ": " + text
		}
	}
	return ""
}

func (v *view) add(r *parleyv1.ConnectRequest, members map[string][]string) {
	v.streams = append(v.streams, &viewStream{view: v, request: r, members: members})
}

func (v *view) differs(online map[string]bool) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var d difference
	for i, s := range v.streams {
		switch {
		case !s.live:
			d.addf("stream %d is not live", i)
		case s.lagging:
			d.addf("stream %d is lagging", i)
		}
		for channel, members := range s.members {
			want := 0
			for _, id := range members {
				if online[id] {
					want++
				}
			}
			if s.counts[channel] != want {
				d.addf("%s has %d online, not %d", channel, s.counts[channel], want)
			}
		}
	}
	states := make(map[string]string, len(v.crowd.ids))
	for _, id := range v.crowd.ids {
		state, ok := v.states[id]
		if !ok {
			state = "unknown"
		}
		states[id] = state
	}
	d.compare(states, online)
	return d.String()
}

// run opens streams until ctx ends.
func (s *viewStream) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.follow(ctx)
		s.view.mu.Lock()
		s.live = false
		s.view.mu.Unlock()
		if sleep(ctx, reopenAfter) != nil {
			return
		}
	}
}

// follow opens a stream and takes its frames until it ends.
func (s *viewStream) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+s.token)
	stream, err := s.client.Connect(ctx, s.request)
	if err != nil {
		s.ended(ctx, err)
		return
	}
	defer func() {
		cancel()
		_ = stream.Close()
	}()
	for stream.Receive() {
		s.take(stream.Msg())
	}
	s.ended(ctx, stream.Err())
}

// ended records an error that the server returned, unless it asks to try again.
func (s *viewStream) ended(ctx context.Context, err error) {
	if ctx.Err() != nil || err == nil {
		return
	}
	if code := connect.CodeOf(err); connect.IsWireError(err) && code != connect.CodeUnavailable && code != connect.CodeAborted {
		s.view.crowd.fail(fmt.Errorf("%s: %w", s.view.name, err))
	}
}

// take records a frame.
func (s *viewStream) take(frame *parleyv1.ConnectResponse) {
	v := s.view
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	update := frame.GetPresence()
	info := frame.GetInfo()
	first := info != nil
	if first {
		s.live, s.lagging, s.revisions, s.counts = true, false, make(map[string]int64), make(map[string]int)
		update = info.GetPresence().GetPresence()
	}
	if update == nil {
		return
	}
	v.frames++
	if update.Lagging != nil {
		s.lagging = update.GetLagging()
	}
	for _, u := range update.GetUsers() {
		if s.newer(u.GetUserId(), u.GetRevision()) {
			v.show(u.GetUserId(), stateOf(u), now, first)
		}
	}
	for _, ch := range update.GetChannels() {
		if s.newer(ch.GetChannelId(), ch.GetRevision()) {
			s.showChannel(ch, now, first)
		}
	}
}

// newer reports whether a revision is higher than the last one of a user or a channel, and records
// it.
func (s *viewStream) newer(id string, revision int64) bool {
	if last, ok := s.revisions[id]; ok && revision <= last {
		return false
	}
	s.revisions[id] = revision
	return true
}

// showChannel records a state of a channel.
func (s *viewStream) showChannel(ch *parleyv1.ChannelPresence, now time.Time, first bool) {
	v, id := s.view, ch.GetChannelId()
	if ch.GetLost() {
		v.crowd.fail(fmt.Errorf("%s: the channel %s is lost", v.name, id))
	}
	s.counts[id] = int(ch.GetOnlineCount())
	for _, u := range ch.GetChanged() {
		v.show(u.GetUserId(), stateOf(u), now, first)
	}
	if !ch.GetComplete() {
		return
	}
	states := make(map[string]string, len(ch.GetOnline()))
	for _, u := range ch.GetOnline() {
		states[u.GetUserId()] = stateOf(u)
	}
	for _, id := range s.members[id] {
		v.show(id, states[id], now, first)
	}
}

// show records a state of a user. first is true for one in the first frame of a stream. A state
// that shows a user offline who is surely online is false.
func (v *view) show(id, state string, now time.Time, first bool) {
	before, known := v.states[id]
	if known && before == state {
		return
	}
	v.states[id] = state
	v.updates++
	u := v.crowd.users[id]
	if u == nil {
		return // the watcher
	}
	if v.times {
		u.showed(v.node, state != "", now)
	}
	if state == "" && known && u.surelyOnline(now) {
		v.falseOffline = append(v.falseOffline, falseOffline{v.name, id, now, first})
	}
}

// stateOf returns the platforms of a user as Redis has them: a number and f or b for each.
func stateOf(u *parleyv1.UserPresence) (state string) {
	for _, p := range u.GetPlatforms() {
		flag := "f"
		if p.GetBackground() {
			flag = "b"
		}
		state += fmt.Sprintf("%d%s", p.GetPlatform(), flag)
	}
	return state
}
