package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// largestText is the largest content of a message.
var largestText = strings.Repeat("x", 64<<10)

// answered returns what a call answered, for budgetRow.
func answered[T proto.Message](m T, err error) (proto.Message, error) { return m, err }

// messageBudgets returns the rows of messages: largest texts, and messages with 300 edits.
func messageBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	var editing errgroup.Group
	edited := r.editMessages(&editing, "edited", 1, 300, 60<<10)[0]
	recalls := r.editMessages(&editing, "recalls", 2, 300, 1<<10)
	r.must(editing.Wait())
	send(r.t, r.c, "edited", "next")
	for range 40 {
		send(r.t, r.c, "large", largestText)
	}
	list := func(channel string, size int32) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: channel, PageSize: size}))
		}
	}
	return []budgetRow{
		{name: "SendMessage, 64 KiB", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "sends", Content: largestText}))
		}},
		{name: "SendMessages, 500 of 4 KB", n: 5, call: func(int) (proto.Message, error) {
			return r.sendBatch(func(int) string { return "batches" })
		}},
		{name: "EditMessage, 64 KiB, the 300th edit", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.EditMessage(ctx, &parleyv1.EditMessageRequest{
				ChannelId: "edited", MsgId: edited, Content: fmt.Sprint(i, largestText[:60<<10]),
			}))
		}},
		{name: "GetMessage, 60 KiB, edited 300 times", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "edited", MsgId: edited}))
		}},
		{name: "ListMessages, 2 messages, one edited 300 times", n: 5, call: list("edited", 50)},
		{name: "ListMessages, the same without Redis", n: 5, call: list("edited", 50), prepare: r.uncache("edited")},
		{name: "ListMessages, a page of 1 MiB", n: 3, call: list("large", 1000)},
		{name: "ListMessages, a page of 1 MiB without Redis", n: 3, call: list("large", 1000), prepare: r.uncache("large")},
		{name: "Subscribe, replay of 2 messages and 300 edits", n: 5, call: func(int) (proto.Message, error) { return r.replay("edited") }},
		{name: "Subscribe, replay of 2.5 MiB", n: 3, call: func(int) (proto.Message, error) { return r.replay("large") }},
		{name: "MarkRead", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: "large", Seq: int64(i%40 + 1)}))
		}},
		{name: "RecallMessage, edited 300 times", n: len(recalls) - 1, call: func(i int) (proto.Message, error) {
			return answered(r.c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "recalls", MsgId: recalls[i]}))
		}},
	}
}

// uncache returns a function that deletes a channel's cache.
func (r *budgetRig) uncache(channel string) func(i int) error {
	client := r.server.Redis.Client(r.t)
	return func(i int) error {
		deleted, err := client.Del(r.t.Context(), "msg_cache:"+channel).Result()
		if err == nil && i == 0 && deleted == 0 {
			err = errors.New("nothing was cached")
		}
		return err
	}
}

// sendBatch sends a batch of 500 messages of 4,000 bytes, each to the channel that channel returns.
func (r *budgetRig) sendBatch(channel func(k int) string) (proto.Message, error) {
	batch := &parleyv1.SendMessagesRequest{}
	for k := range 500 {
		batch.Messages = append(batch.Messages, &parleyv1.SendMessageRequest{ChannelId: channel(k), Content: largestText[:4000]})
	}
	res, err := r.c.SendMessages(r.t.Context(), batch)
	for _, result := range res.GetResults() {
		if e := result.GetError(); e != nil {
			return nil, errors.New(e.String())
		}
	}
	return res, err
}

// editMessages sends n messages to a channel and returns their ids. In group it edits each of them
// with texts of size bytes.
func (r *budgetRig) editMessages(group *errgroup.Group, channel string, n, edits, size int) []string {
	r.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = send(r.t, r.c, channel, "0").GetMsgId()
		group.Go(func() error {
			for k := range edits {
				if _, err := r.c.EditMessage(r.t.Context(), &parleyv1.EditMessageRequest{
					ChannelId: channel, MsgId: ids[i], Content: fmt.Sprint(k, largestText[:size]),
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return ids
}

// replay reads a channel from its beginning to its head and returns the events.
func (r *budgetRig) replay(channel string) (proto.Message, error) {
	return r.replayAll([]*parleyv1.ChannelPosition{from(channel, 0)})
}

// replayAll reads channels from their beginnings to their heads and returns the events.
func (r *budgetRig) replayAll(channels []*parleyv1.ChannelPosition) (proto.Message, error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	stream, err := r.c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: channels})
	if err != nil {
		return nil, err
	}
	heads, left := map[string]int64{}, len(channels)
	all := &parleyv1.EventBatch{}
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			all.Events = append(all.Events, e)
			if st := e.GetState(); st != nil {
				heads[e.GetChannelId()] = st.GetHeadSeq()
			} else if e.GetSeq() >= heads[e.GetChannelId()] {
				left--
			}
		}
		if left == 0 {
			return all, nil
		}
	}
	return nil, stream.Err()
}
