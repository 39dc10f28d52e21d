package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
)

// judge records what the agent reported, and reads channels' logs from the server to compare. It
// calls the server through the generated clients, without a proxy or an SDK. Safe for concurrent
// use.
type judge struct {
	rpc   parleyv1connect.MessageServiceClient
	admin parleyv1connect.AdminServiceClient
	token string

	mu sync.Mutex // guards the fields below
	// sent contains the receipts that agents got, by channel.
	sent map[string][]sent
	// delivered contains the events that subscriptions delivered, by subscription.
	delivered map[string][]map[string]any
	// started contains the channels that subscriptions followed at any time, by subscription.
	started map[string]map[string]bool
}

// sent is a message that the SDK reported as stored. begun and ended are when its call began and
// ended.
type sent struct {
	begun, ended  time.Time
	seq           int64
	id, clientMsg string
	content       string
}

func newJudge(t *testing.T, b *backend) *judge {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	token, err := rig.Token(b.secret, "judge", time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, address := &http.Client{Transport: transport}, "http://"+b.machines[0].Addr()
	return &judge{
		rpc:   parleyv1connect.NewMessageServiceClient(client, address),
		admin: parleyv1connect.NewAdminServiceClient(client, address),
		token: token, sent: make(map[string][]sent), delivered: make(map[string][]map[string]any),
		started: make(map[string]map[string]bool),
	}
}

// authorized returns a context whose calls carry the judge's token.
func (j *judge) authorized(ctx context.Context) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+j.token)
	return ctx
}

// note records the receipts, the followed channels or the events in the answer to a command.
func (j *judge) note(b *begun, got reply) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch b.op {
	case "send":
		if got.Error == nil {
			j.receipt(b, now, b.args, got.Result)
		}
	case "sendBatch":
		messages, _ := b.args["messages"].([]any)
		results, _ := got.Result["results"].([]any)
		for i, r := range results {
			result, _ := r.(map[string]any)
			receipt, ok := result["receipt"].(map[string]any)
			if message, _ := messages[i].(map[string]any); ok {
				j.receipt(b, now, message, receipt)
			}
		}
	case "subscribe", "add":
		if got.Error == nil {
			j.start(b.args)
		}
	case "take":
		sub, _ := b.args["sub"].(string)
		events, _ := got.Result["events"].([]any)
		for _, e := range events {
			event, _ := e.(map[string]any)
			j.delivered[sub] = append(j.delivered[sub], event)
		}
	}
}

func (j *judge) start(args map[string]any) {
	sub, _ := args["sub"].(string)
	starts, _ := args["starts"].([]any)
	if j.started[sub] == nil {
		j.started[sub] = make(map[string]bool)
	}
	for _, s := range starts {
		start, _ := s.(map[string]any)
		channel, _ := start["channelId"].(string)
		j.started[sub][channel] = true
	}
}

func (j *judge) receipt(b *begun, now time.Time, message, receipt map[string]any) {
	channel, _ := message["channelId"].(string)
	seq, _ := number(receipt["seq"])
	id, _ := receipt["msgId"].(string)
	clientMsg, _ := receipt["clientMsgId"].(string)
	j.sent[channel] = append(j.sent[channel], sent{
		begun: b.at, ended: now, seq: int64(seq), id: id, clientMsg: clientMsg, content: fmt.Sprint(message["content"]),
	})
}

// messages returns all messages of a channel from the server, in order.
func (j *judge) messages(ctx context.Context, channel string) ([]*parleyv1.ChannelMessage, error) {
	var all []*parleyv1.ChannelMessage
	req := &parleyv1.ListMessagesRequest{ChannelId: channel, AfterSeq: new(int64), PageSize: 1000}
	for {
		page, err := j.rpc.ListMessages(j.authorized(ctx), req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetMessages()...)
		if page.GetNextPageToken() == "" {
			return all, nil
		}
		req.PageToken = page.GetNextPageToken()
	}
}

// readLog executes the action `log`: it returns a channel's messages as the server has them.
func readLog(ctx context.Context, r *run, args any) (reply, error) {
	channel, err := field[string](args, "channelId")
	if err != nil {
		return reply{}, err
	}
	messages, err := r.judge.messages(ctx, channel)
	all := []any{}
	for _, m := range messages {
		all = append(all, map[string]any{
			"seq": m.GetSeq(), "content": m.GetContent(), "fromId": m.GetFromId(), "clientMsgId": m.GetClientMsgId(),
			"msgId": m.GetMsgId(), "changedSeq": m.GetChangedSeq(), "type": m.GetMsgType(),
			"status": strings.ToLower(strings.TrimPrefix(m.GetStatus().String(), "MESSAGE_STATUS_")),
		})
	}
	return reply{Result: map[string]any{listResult: all}}, err
}

// write sends count messages to the server without the agent. Their contents are `1`, `2` and so
// on, each padded to the length in `bytes`.
func write(ctx context.Context, r *run, args any) (reply, error) {
	channel, err1 := field[string](args, "channelId")
	count, err2 := field[int](args, "count")
	bytes, err3 := field[int](args, "bytes")
	if err := errors.Join(err1, err2, err3); err != nil {
		return reply{}, err
	}
	batch := new(parleyv1.SendMessagesRequest)
	for i := range count {
		text := fmt.Sprintf("%-*d", max(bytes, 1), i+1)
		batch.Messages = append(batch.Messages, &parleyv1.SendMessageRequest{ChannelId: channel, Content: text})
		if i+1 < count && len(batch.GetMessages())*bytes < 1<<20 {
			continue
		}
		res, err := r.judge.rpc.SendMessages(r.judge.authorized(ctx), batch)
		if err != nil {
			return reply{}, err
		}
		for _, item := range res.GetResults() {
			if e := item.GetError(); e != nil {
				return reply{}, fmt.Errorf("the judge's own message: %s", e.GetMessage())
			}
		}
		batch.Messages = nil
	}
	return reply{}, nil
}

// eraseUser starts to erase a user's messages and memberships. It does not wait for the job.
func eraseUser(ctx context.Context, r *run, args any) (reply, error) {
	user, err := field[string](args, "userId")
	if err != nil {
		return reply{}, err
	}
	_, err = r.judge.admin.EraseUser(r.judge.authorized(ctx), &parleyv1.EraseUserRequest{UserId: user})
	return reply{}, err
}

// revoke revokes the tokens of a login (`ssid`) or those that a user has now (`userId`), as an
// operator does. It returns when every node refuses them or will within a second.
func revoke(ctx context.Context, r *run, args any) (reply, error) {
	ssid, err1 := field[string](args, "ssid")
	user, err2 := field[string](args, "userId")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	req := &parleyv1.RevokeTokensRequest{Target: &parleyv1.RevokeTokensRequest_Ssid{Ssid: ssid}}
	if user != "" {
		req.Target = &parleyv1.RevokeTokensRequest_UserId{UserId: user}
	}
	_, err := r.judge.admin.RevokeTokens(r.judge.authorized(ctx), req)
	return reply{}, err
}

// expire makes all but the newest `keep` messages of a channel expire, and waits for it. The server
// does it only if there are at least 100 more.
func expire(ctx context.Context, r *run, args any) (reply, error) {
	channel, err1 := field[string](args, "channelId")
	keep, err2 := field[int](args, "keep")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	ctx = r.judge.authorized(ctx)
	updated, err := r.judge.rpc.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
		ChannelId: channel, Retention: &parleyv1.ChannelRetention{MaxMessages: int64(keep)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
	})
	if err != nil {
		return reply{}, err
	}
	oldest := updated.GetChannel().GetOldestSeq()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := r.judge.rpc.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: channel})
		if err != nil || got.GetChannel().GetOldestSeq() > oldest {
			return reply{}, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return reply{}, context.Cause(ctx)
		}
	}
}

// check compares a channel's log with what the agent reported. Every message that it reported as
// stored must be in the log once, with its content and in the order of the calls. The log must
// contain no other messages. Each named subscription must have delivered exactly the log, in order,
// including the events that it still holds, and no event of a channel that it does not follow.
func check(ctx context.Context, r *run, args any) (reply, error) {
	channel, err1 := field[string](args, "channelId")
	subs, err2 := field[[]any](args, "subs")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	for _, sub := range subs {
		if err := r.drain(ctx, sub); err != nil {
			return reply{}, err
		}
	}
	messages, err := r.judge.messages(ctx, channel)
	if err != nil {
		return reply{}, err
	}
	r.judge.mu.Lock()
	defer r.judge.mu.Unlock()
	if err := checkLog(messages, r.judge.sent[channel]); err != nil {
		return reply{}, err
	}
	for _, sub := range subs {
		name, _ := sub.(string)
		delivered := r.judge.delivered[name]
		if err := errors.Join(checkDelivered(messages, channel, delivered), checkStarted(r.judge.started[name], delivered)); err != nil {
			return reply{}, fmt.Errorf("subscription %s: %w", name, err)
		}
	}
	return reply{}, nil
}

// drained is how long a subscription must deliver no event to count as empty.
const drained = 100 * time.Millisecond

// drain takes all events that a subscription still holds, so that the checks find an event too
// many.
func (r *run) drain(ctx context.Context, sub any) error {
	name, ok := sub.(string)
	if !ok {
		return fmt.Errorf("no subscription %v", sub)
	}
	for {
		taken, err := r.take(ctx, name, 100, drained)
		if err != nil || len(taken) == 0 {
			return err
		}
	}
}
