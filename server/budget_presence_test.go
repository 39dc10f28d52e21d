package server_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const (
	// onlineUsers is how many users are online, and watchers how many of them watch the guests.
	onlineUsers, watchers = 1000, 200
	// guests is how many users come and go.
	guests = 6
	// watchedChannels is how many channels of 1,000 members there are.
	watchedChannels = 20
)

// presenceBudgets returns the rows of presence: 1,000 users online with the longest ids, of whom
// 200 watch the guests, and who all are members of 20 channels.
func presenceBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	p := r.crowdOnline()
	users := p.users
	var arrived [guests]string // the streams of the guests
	watcher := p.connected(1, watching(users[:500]...))[0]
	club := p.connected(2, watching())
	strangers := func(i int) []string {
		ids := make([]string, 500)
		for k := range ids {
			ids[k] = longID(1_000_000 + 500*i + k)
		}
		return ids
	}
	get := func(ids func(i int) []string) func(int) (proto.Message, error) {
		return func(i int) (proto.Message, error) {
			return answered(r.presence.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: ids(i)}))
		}
	}
	watchChannel := func(stream, channel string) (proto.Message, error) {
		return answered(r.presence.WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: stream, ChannelId: channel}))
	}
	var channels []string
	for i := range watchedChannels {
		channels = append(channels, fmt.Sprint("club-", i))
	}
	return []budgetRow{
		{name: "Connect, a user whom 200 watch", n: guests - 1, call: func(i int) (_ proto.Message, err error) {
			arrived[i], err = p.open(ctx, p.guests[i], phone(nil))
			return nil, err
		}},
		{name: "Connect, watching 1,000 users online", n: 5, call: func(int) (proto.Message, error) { return p.connect(watching(users...), len(users), 0) }},
		{name: "Connect, watching 20 channels with 1,000 members online", n: 3, call: func(int) (proto.Message, error) {
			return p.connect(watchingChannels(channels...), 0, watchedChannels)
		}},
		{name: "UpdateWatch, 500 users for 500 others", n: 5, call: func(i int) (proto.Message, error) {
			add, remove := users[500:], users[:500]
			if i%2 == 1 {
				add, remove = remove, add
			}
			return answered(r.presence.UpdateWatch(ctx, &parleyv1.UpdateWatchRequest{StreamId: watcher, Add: add, Remove: remove}))
		}},
		{name: "WatchChannel, 1,000 members online", n: 5, call: func(i int) (proto.Message, error) { return watchChannel(club[0], channels[i]) }},
		{name: "WatchChannel, 5,000 members", n: 3, call: func(int) (proto.Message, error) { return watchChannel(club[1], "crowd") }, prepare: func(int) error {
			return callErr(r.presence.UnwatchChannel(ctx, &parleyv1.UnwatchChannelRequest{StreamId: club[1], ChannelId: "crowd"}))
		}},
		{name: "UnwatchChannel, 1,000 members online", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.presence.UnwatchChannel(ctx, &parleyv1.UnwatchChannelRequest{StreamId: club[0], ChannelId: channels[i]}))
		}},
		{name: "SetBackground, 200 watchers", n: guests - 1, call: func(i int) (proto.Message, error) {
			return answered(p.guests[i].SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: arrived[i], Background: true}))
		}},
		{name: "Disconnect, 200 watchers", n: guests - 1, call: func(i int) (proto.Message, error) {
			return answered(p.guests[i].Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: arrived[i]}))
		}},
		{name: "GetPresence, 500 users online", n: 5, call: get(func(int) []string { return users[:500] })},
		{name: "GetPresence, 500 unknown users", n: 5, call: get(strangers)},
		{name: "ListOnlineUsers, 1,000", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.presence.ListOnlineUsers(ctx, &parleyv1.ListOnlineUsersRequest{PageSize: 1000}))
		}},
	}
}

// presenceCrowd is users who are online, and channels of which they are members.
type presenceCrowd struct {
	r       *budgetRig
	users   []string
	guests  [guests]parleyv1connect.PresenceServiceClient
	reading sync.WaitGroup
}

// crowdOnline connects onlineUsers users, and makes them members of watchedChannels channels. It
// creates the channel crowd with 5,000 members too, of whom these users are the first.
func (r *budgetRig) crowdOnline() *presenceCrowd {
	r.t.Helper()
	p := &presenceCrowd{r: r, users: make([]string, onlineUsers)}
	r.t.Cleanup(p.reading.Wait)
	var watch []string
	for i := range p.guests {
		watch = append(watch, fmt.Sprint("guest-", i))
		p.guests[i] = r.server.Presence(r.server.TokenOf(watch[i]), connect.WithInterceptors(r))
	}
	clients := r.httpClients(onlineUsers / 200)
	var opening errgroup.Group
	opening.SetLimit(16)
	for i := range p.users {
		p.users[i] = longID(i)
		token := r.server.TokenOf(p.users[i])
		c := parleyv1connect.NewPresenceServiceClient(clients[i/200], r.server.URL)
		opening.Go(func() error {
			ctx, call := connect.NewClientContext(r.t.Context())
			call.RequestHeader().Set("Authorization", "Bearer "+token)
			req := phone(nil)
			if i < watchers {
				req.Watch = watch
			}
			_, err := p.open(ctx, c, req)
			return err
		})
	}
	r.must(opening.Wait())
	var creating errgroup.Group
	creating.SetLimit(4)
	creating.Go(func() error { return r.channelOf("crowd", 5000) })
	for i := range watchedChannels {
		creating.Go(func() error { return r.channelOf(fmt.Sprint("club-", i), onlineUsers-1) }) // and the tester
	}
	r.must(creating.Wait())
	testkit.Eventually(r.t, 20*time.Second, func() error {
		page, err := r.presence.ListOnlineUsers(r.t.Context(), &parleyv1.ListOnlineUsersRequest{PageSize: onlineUsers})
		if err == nil && len(page.GetPresence()) < onlineUsers {
			err = fmt.Errorf("%d users are online", len(page.GetPresence()))
		}
		return err
	})
	return p
}

// open opens a Connect stream and reads it until the test ends. It returns the stream's id.
func (p *presenceCrowd) open(ctx context.Context, c parleyv1connect.PresenceServiceClient, req *parleyv1.ConnectRequest) (string, error) {
	stream, err := c.Connect(ctx, req)
	if err != nil {
		return "", err
	}
	if !stream.Receive() {
		return "", stream.Err()
	}
	id := stream.Msg().GetInfo().GetStream().GetStreamId()
	p.reading.Go(func() {
		for stream.Receive() { // what is not read would wait in the server
		}
	})
	return id, nil
}

// connected opens n Connect streams of the tester and returns their ids.
func (p *presenceCrowd) connected(n int, req *parleyv1.ConnectRequest) []string {
	p.r.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		var err error
		ids[i], err = p.open(p.r.t.Context(), p.r.presence, req)
		p.r.must(err)
	}
	return ids
}

// connect opens a Connect stream, reads the states of so many users and channels, and ends it. It
// returns what it read.
func (p *presenceCrowd) connect(req *parleyv1.ConnectRequest, users, channels int) (proto.Message, error) {
	ctx, cancel := context.WithCancel(p.r.t.Context())
	defer cancel()
	stream, err := p.r.presence.Connect(ctx, req)
	if err != nil {
		return nil, err
	}
	all := &parleyv1.PresenceUpdate{}
	for stream.Receive() {
		proto.Merge(all, stream.Msg().GetInfo().GetPresence().GetPresence())
		proto.Merge(all, stream.Msg().GetPresence())
		if len(all.GetUsers()) >= users && len(all.GetChannels()) >= channels {
			return all, nil
		}
	}
	return nil, stream.Err()
}

// channelOf creates a members-only channel with the users 0 to n-1.
func (r *budgetRig) channelOf(channel string, n int) error {
	ctx := r.t.Context()
	if _, err := r.c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true}); err != nil {
		return err
	}
	for i := 0; i < n; i += 500 {
		some := members(i, min(500, n-i))
		if _, err := r.c.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: channel, Members: some}); err != nil {
			return err
		}
	}
	return nil
}
