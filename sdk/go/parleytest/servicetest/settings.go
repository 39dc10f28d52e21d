package servicetest

import (
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// channelSettings reads and changes the settings of channels.
func channelSettings(e *env) {
	id, reader := e.name("settings"), e.user("reader")
	mask := &fieldmaskpb.FieldMask{Paths: []string{"retention"}}
	week := &parleyv1.ChannelRetention{MaxAge: durationpb.New(7 * 24 * time.Hour), MaxMessages: 1000}
	get := func() *parleyv1.ChannelInfo {
		e.Helper()
		r, err := e.ann.GetChannel(e.ctx, &parleyv1.GetChannelRequest{ChannelId: id})
		e.no(err)
		return r.GetChannel()
	}
	update := func(c *caller, r *parleyv1.ChannelRetention, etag string) (*parleyv1.ChannelInfo, error) {
		u, err := c.UpdateChannel(e.ctx, &parleyv1.UpdateChannelRequest{ChannelId: id, Retention: r, UpdateMask: mask, Etag: etag})
		return u.GetChannel(), err
	}
	e.refused("read a missing channel", errOf(e.ann.GetChannel(e.ctx, &parleyv1.GetChannelRequest{ChannelId: id})), noChannel)
	e.refused("change a missing channel", errOf(update(e.ann, week, "")), noChannel)
	made, err := e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{
		ChannelId: id, MembersOnly: true, IdempotencyKey: "key", Retention: week,
	})
	e.no(err)
	equal(e, "retention of a new channel", proto.Equal(made.GetChannel().GetRetention(), week), true)
	e.refused("create again with other settings", errOf(e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: id, MembersOnly: true, IdempotencyKey: "key"})),
		refusal{connect.CodeAlreadyExists, "IDEMPOTENCY_KEY_REUSED", "idempotency_key", 0})
	equal(e, "read channel", proto.Equal(get(), made.GetChannel()), true)
	e.refused("read as a stranger", errOf(reader.GetChannel(e.ctx, &parleyv1.GetChannelRequest{ChannelId: id})), notMember)
	e.refused("change without manage", errOf(update(reader, nil, "")), noManage)

	all, err := update(e.ann, &parleyv1.ChannelRetention{}, made.GetChannel().GetEtag())
	e.no(err)
	equal(e, "no limits", proto.Equal(all.GetRetention(), &parleyv1.ChannelRetention{}) && all.GetRetention() != nil, true)
	equal(e, "the etag has changed", all.GetEtag() != made.GetChannel().GetEtag(), true)
	// A repeat, and a change of settings that the caller has not seen.
	again, err := update(e.ann, &parleyv1.ChannelRetention{}, made.GetChannel().GetEtag())
	e.no(err)
	equal(e, "repeated", proto.Equal(again, all), true)
	e.refused("change with an old etag", errOf(update(e.ann, week, made.GetChannel().GetEtag())),
		refusal{connect.CodeFailedPrecondition, "ETAG_MISMATCH", "etag", 0})
	own, err := update(e.ann, nil, "")
	e.no(err)
	equal(e, "the default", own.GetRetention() == nil && proto.Equal(own, get()), true)

	for _, tc := range []struct {
		req  *parleyv1.UpdateChannelRequest
		want refusal
	}{
		{&parleyv1.UpdateChannelRequest{ChannelId: id}, invalid("update_mask", 0)},
		{&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: &fieldmaskpb.FieldMask{}}, invalid("update_mask", 0)},
		{
			&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention", "created_by"}}},
			invalid("update_mask", 0),
		},
		{
			&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}}},
			invalid("members_only", 0),
		},
		{&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: mask, MembersOnly: proto.Bool(false)}, invalid("update_mask", 0)},
		{
			&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: mask, Retention: &parleyv1.ChannelRetention{MaxMessages: -1}},
			invalid("retention.max_messages", 0),
		},
		{
			&parleyv1.UpdateChannelRequest{ChannelId: id, UpdateMask: mask, Retention: &parleyv1.ChannelRetention{MaxBytes: -1}},
			invalid("retention.max_bytes", 0),
		},
	} {
		e.refused(tc.req.String(), errOf(e.ann.UpdateChannel(e.ctx, tc.req)), tc.want)
	}
	for _, age := range []time.Duration{time.Minute - 1, -time.Hour} {
		_, err := update(e.ann, &parleyv1.ChannelRetention{MaxAge: durationpb.New(age)}, "")
		equal(e, "code of a short age", connect.CodeOf(err), connect.CodeInvalidArgument)
	}
}

// channelMode closes and opens a channel.
func channelMode(e *env) {
	id, reader := e.name("mode"), e.user("reader")
	set := func(membersOnly bool, etag string) *parleyv1.ChannelInfo {
		e.Helper()
		u, err := e.ann.UpdateChannel(e.ctx, &parleyv1.UpdateChannelRequest{
			ChannelId: id, MembersOnly: &membersOnly, Etag: etag, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}},
		})
		e.no(err)
		return u.GetChannel()
	}
	week := &parleyv1.ChannelRetention{MaxMessages: 1000}
	made, err := e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: id, Retention: week})
	e.no(err)
	first, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: id, Content: "open"})
	e.no(err)
	list := func() (int, error) {
		page, err := reader.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: id})
		return len(page.GetMessages()), err
	}
	n, err := list()
	e.no(err)
	equal(e, "messages of an open channel", n, 1)
	closed := set(true, made.GetChannel().GetEtag())
	equal(e, "closed", closed.GetMembersOnly() && closed.GetEtag() != made.GetChannel().GetEtag(), true)
	equal(e, "the retention is kept", proto.Equal(closed.GetRetention(), week), true)
	again := set(true, made.GetChannel().GetEtag())
	equal(e, "head after a repeat", again.GetHeadSeq() >= closed.GetHeadSeq() && again.GetCount() >= closed.GetCount(), true)
	again.HeadSeq, again.Count = closed.GetHeadSeq(), closed.GetCount() // may be 100 ms old
	equal(e, "repeated", proto.Equal(again, closed), true)
	e.refused("list as a stranger", errOf(list()), notMember)
	e.refused("send as a stranger", errOf(reader.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: id, Content: "x"})), notMember)
	second, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: id, Content: "closed"})
	e.no(err)
	equal(e, "seq rises", second.GetSeq() > first.GetSeq(), true)
	equal(e, "count", second.GetCount(), 2)
	opened := set(false, closed.GetEtag())
	equal(e, "opened", opened.GetMembersOnly(), false)
	n, err = list()
	e.no(err)
	equal(e, "the whole history", n, 2)
}

// deletion deletes a channel. Nobody can use it any more, and subscribers lose it.
func deletion(e *env) {
	id, carl := e.name("gone"), e.user("carl")
	del := func(c *caller, channelID, etag string) error {
		return errOf(c.DeleteChannel(e.ctx, &parleyv1.DeleteChannelRequest{ChannelId: channelID, Etag: etag}))
	}
	e.refused("delete a missing channel", del(e.ann, id, ""), noChannel)
	made, err := e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: id, MembersOnly: true, Members: usersOf(carl)})
	e.no(err)
	sent := e.say(carl, id, "one")
	e.refused("delete without manage", del(carl, id, ""), noManage)
	e.refused("delete with another etag", del(e.ann, id, "other"), refusal{connect.CodeFailedPrecondition, "ETAG_MISMATCH", "etag", 0})
	lost := make(chan parleyv1.LostReason, 2)
	for _, c := range []*caller{e.ann, carl} {
		stream, err := c.Subscribe(e.ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live(id)}})
		e.no(err)
		begun := make(chan struct{})
		go func() {
			for stream.Receive() {
				for _, event := range stream.Msg().GetEvents().GetEvents() {
					switch {
					case event.GetState() != nil:
						close(begun)
					case event.GetLost() != nil:
						lost <- event.GetLost().GetReason()
						return
					}
				}
			}
			close(lost)
		}()
		select {
		case <-begun:
		case <-e.ctx.Done():
			e.Fatal("no state of the channel")
		}
	}
	for range 2 { // a repeat does nothing
		e.no(del(e.ann, id, made.GetChannel().GetEtag()))
	}
	for range 2 {
		equal(e, "why the channel is lost", <-lost, parleyv1.LostReason_LOST_REASON_DELETED)
	}
	gone := refusal{noChannel.code, noChannel.reason, "", 0}
	for name, c := range map[string]*caller{"manager": e.ann, "member": carl} {
		e.refused(name+" sends", errOf(c.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: id, Content: "x"})), gone)
		e.refused(name+" lists", errOf(c.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: id})), gone)
		e.refused(name+" reads", errOf(c.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: id, MsgId: sent.GetMsgId()})), gone)
		stream, err := c.Subscribe(e.ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live(id)}})
		for err == nil && stream.Receive() {
			e.Errorf("frame %v", stream.Msg())
		}
		if err == nil {
			err = stream.Err()
		}
		e.refused(name+" subscribes", err, refusal{noChannel.code, noChannel.reason, "channels[0].channel_id", 0})
		r, err := c.ListChannels(e.ctx, &parleyv1.ListChannelsRequest{PageSize: 200})
		e.no(err)
		for _, mine := range r.GetChannels() {
			if mine.GetChannel().GetChannelId() == id {
				e.Errorf("%s still has the channel", name)
			}
		}
	}
	e.refused("get", errOf(e.ann.GetChannel(e.ctx, &parleyv1.GetChannelRequest{ChannelId: id})), gone)
	e.refused("add members", errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: id, Members: usersOf(carl)})), noChannel)
}
