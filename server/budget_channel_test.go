package server_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// channelBudgets returns the rows of channels: 5,000 members, 2,000 channels of a user, streams of
// 500 channels, and 100 subscribers of a channel.
func channelBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	r.must(callErr(r.c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "crowd", MembersOnly: true})))
	var one, many *budgetSubscribers
	return []budgetRow{
		{name: "CreateChannel, 500 members", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{
				ChannelId: fmt.Sprint("club-", i), MembersOnly: true, Members: members(500*i, 500),
			}))
		}},
		{name: "AddMembers, 500 to up to 4,500", n: 9, call: func(i int) (proto.Message, error) {
			return answered(r.c.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: "crowd", Members: members(500*i, 500)}))
		}},
		{name: "GetChannel, 5,000 members", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: "crowd"}))
		}},
		{name: "UpdateMember, 5,000 members", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.UpdateMember(ctx, &parleyv1.UpdateMemberRequest{
				ChannelId: "crowd", UserId: members(i, 1)[0].GetUserId(), Role: parleyv1.MemberRole_MEMBER_ROLE_MODERATOR,
			}))
		}},
		{name: "UpdateChannel, 5,000 members", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
				ChannelId: "crowd", UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
				Retention: &parleyv1.ChannelRetention{MaxMessages: int64(1_000_000 + i)},
			}))
		}},
		{name: "ListMembers, 1,000 of 5,000", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: "crowd", PageSize: 1000}))
		}},
		{name: "RemoveMembers, 500 of 5,000", n: 3, call: func(i int) (proto.Message, error) {
			req := &parleyv1.RemoveMembersRequest{ChannelId: "crowd"}
			for _, m := range members(500*i, 500) {
				req.UserIds = append(req.UserIds, m.GetUserId())
			}
			return answered(r.c.RemoveMembers(ctx, req))
		}},
		{name: "SendMessages, 500 of 4 KB to 500 new channels", n: 3, call: func(i int) (proto.Message, error) {
			return r.sendBatch(func(k int) string { return mine(i, k) })
		}},
		{name: "ListChannels, 200 of 2,000", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageSize: 200}))
		}},
		{name: "ListChannels, 40 channels, last messages of 64 KiB", n: 5, call: r.largeChannels()},
		{name: "Subscribe, replay of 500 channels", n: 3, call: func(i int) (proto.Message, error) {
			return r.replayAll(positions(i, 500, func(channel string) *parleyv1.ChannelPosition { return from(channel, 0) }))
		}},
		{
			name: "UpdateSubscription, 500 channels for 500 others", n: 3, call: func(i int) (proto.Message, error) { return one.exchange(i+1, i) },
			prepare: func(i int) error {
				if i == 0 {
					one = r.subscribers(1, positions(0, 500, live))
				}
				return one.await(&one.states, int64(500*(i+1)))
			},
		},
		{
			name: "SendTyping, 100 subscribers", n: 5, call: func(i int) (proto.Message, error) { return many.typing(mine(0, i)) },
			prepare: func(i int) error {
				if i == 0 {
					many = r.subscribers(100, positions(0, 6, live))
				}
				return many.await(&many.states, 600)
			},
		},
		{name: "DeleteChannel, 500 members", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.DeleteChannel(ctx, &parleyv1.DeleteChannelRequest{ChannelId: fmt.Sprint("club-", i)}))
		}},
	}
}

// mine returns the id of channel k of batch i.
func mine(i, k int) string { return fmt.Sprintf("mine-%d-%03d", i%4, k) }

// positions returns positions in the first n channels of batch i.
func positions(i, n int, at func(channel string) *parleyv1.ChannelPosition) []*parleyv1.ChannelPosition {
	all := make([]*parleyv1.ChannelPosition, n)
	for k := range all {
		all[k] = at(mine(i, k))
	}
	return all
}

// members returns the n users from user number first on.
func members(first, n int) []*parleyv1.ChannelMember {
	all := make([]*parleyv1.ChannelMember, n)
	for k := range all {
		all[k] = &parleyv1.ChannelMember{UserId: longID(first + k)}
	}
	return all
}

// longID returns the id of user n, which has the largest length.
func longID(n int) string { return fmt.Sprintf("user-%0123d", n) }

// largeChannels creates 40 channels of another user, each with a message of 64 KiB, and returns a
// call that lists them.
func (r *budgetRig) largeChannels() func(int) (proto.Message, error) {
	other := r.server.Client(r.server.TokenOf("other"), connect.WithInterceptors(r))
	for i := range 40 {
		send(r.t, other, fmt.Sprintf("large-%02d", i), largestText)
	}
	return func(int) (proto.Message, error) {
		return answered(other.ListChannels(r.t.Context(), &parleyv1.ListChannelsRequest{PageSize: 200}))
	}
}

// budgetSubscribers are Subscribe streams.
type budgetSubscribers struct {
	r *budgetRig
	// typed, states and sent count the events of all streams.
	typed, states, sent atomic.Int64
	ids                 []string
	moved               chan struct{} // gets a value, unless it has one, when one of these has changed
}

// subscribers opens n streams of one user that follow channels.
func (r *budgetRig) subscribers(n int, channels []*parleyv1.ChannelPosition) *budgetSubscribers {
	r.t.Helper()
	return r.subscribersOf(slices.Repeat([]client{r.server.Client(r.server.Token)}, n), channels)
}

// subscribersOf opens a stream of each client that follows channels.
func (r *budgetRig) subscribersOf(clients []client, channels []*parleyv1.ChannelPosition) *budgetSubscribers {
	r.t.Helper()
	s := &budgetSubscribers{r: r, ids: make([]string, len(clients)), moved: make(chan struct{}, 1)}
	var opening errgroup.Group
	var reading sync.WaitGroup
	r.t.Cleanup(reading.Wait)
	opening.SetLimit(16)
	for i, c := range clients {
		opening.Go(func() error {
			stream, err := c.Subscribe(r.t.Context(), &parleyv1.SubscribeRequest{Channels: channels})
			if err != nil {
				return err
			}
			if !stream.Receive() {
				return stream.Err()
			}
			s.ids[i] = stream.Msg().GetInfo().GetStreamId()
			reading.Go(func() { s.read(stream) })
			return nil
		})
	}
	r.must(opening.Wait())
	return s
}

// read counts the events of a stream until it ends.
func (s *budgetSubscribers) read(stream *connect.ServerStreamForClient[parleyv1.SubscribeResponse]) {
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			if e.GetTyping() != nil {
				s.typed.Add(1)
			}
			if e.GetState() != nil {
				s.states.Add(1)
			}
			if e.GetSent() != nil {
				s.sent.Add(1)
			}
		}
		select {
		case s.moved <- struct{}{}:
		default:
		}
	}
}

// await waits until count is at least n.
func (s *budgetSubscribers) await(count *atomic.Int64, n int64) error {
	for count.Load() < n {
		select {
		case <-s.moved:
		case <-s.r.t.Context().Done():
			return s.r.t.Context().Err()
		}
	}
	return nil
}

// exchange replaces the first stream's 500 channels of batch remove by those of batch add, and
// waits for their states.
func (s *budgetSubscribers) exchange(add, remove int) (proto.Message, error) {
	want := s.states.Load() + 500
	req := &parleyv1.UpdateSubscriptionRequest{StreamId: s.ids[0], Add: positions(add, 500, live)}
	for k := range 500 {
		req.Remove = append(req.Remove, mine(remove, k))
	}
	res, err := s.r.c.UpdateSubscription(s.r.t.Context(), req)
	if err != nil {
		return nil, err
	}
	return res, s.await(&s.states, want)
}

// typing sends a notification and waits until all streams have it.
func (s *budgetSubscribers) typing(channel string) (proto.Message, error) {
	want := s.typed.Load() + int64(len(s.ids))
	res, err := s.r.c.SendTyping(s.r.t.Context(), &parleyv1.SendTypingRequest{ChannelId: channel})
	if err != nil {
		return nil, err
	}
	return res, s.await(&s.typed, want)
}
