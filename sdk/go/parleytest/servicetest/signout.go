package servicetest

import (
	"context"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// signOut revokes a token with live streams of all services.
func signOut(e *env) {
	room, topic := e.name("room"), e.name("topic")
	e.no(errOf(e.ann.admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: topic, Partitions: 1}})))
	e.no(errOf(e.ann.admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: topic, Group: &parleyv1.Group{Name: "g"}})))
	user := e.as(e.name("leaver"))
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)

	messages, err := user.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from(room, 0)}})
	e.no(err)
	e.opened(messages, cancel, func() *parleyv1.StreamInfo { return messages.Msg().GetInfo() })
	presence, err := user.presence.Connect(ctx, &parleyv1.ConnectRequest{Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: "d"})
	e.no(err)
	e.opened(presence, cancel, func() *parleyv1.StreamInfo { return presence.Msg().GetInfo().GetStream() })
	deliveries, err := user.queues.Consume(ctx, &parleyv1.ConsumeRequest{Topics: []string{topic}, Group: "g", Consumer: "c"})
	e.no(err)
	e.opened(deliveries, cancel, func() *parleyv1.StreamInfo {
		first := deliveries.Msg().GetStarted()
		return &parleyv1.StreamInfo{StreamId: first.GetSessionId(), HeartbeatInterval: first.GetHeartbeatInterval()}
	})

	e.no(errOf(user.presence.SignOut(e.ctx, &parleyv1.SignOutRequest{})))
	revoked := refusal{connect.CodeUnauthenticated, "TOKEN_REVOKED", "", 0}
	for name, stream := range map[string]openStream{"Subscribe": messages, "Connect": presence, "Consume": deliveries} {
		for stream.Receive() {
		}
		e.refused("the stream "+name, stream.Err(), revoked)
	}
	e.refused("SignOut again", errOf(user.presence.SignOut(e.ctx, &parleyv1.SignOutRequest{})), revoked)
	e.refused("a call", errOf(user.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room})), revoked)
	again, err := user.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from(room, 0)}})
	e.no(err)
	for again.Receive() {
		e.Error("a revoked token has opened a stream")
	}
	e.refused("a new stream", again.Err(), revoked)
	e.no(errOf(e.ann.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room})))
}
