package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// topic and group exist, so that their streams open.
	topic, group = "jobs", "thieves"
	// answerWait bounds a call, and the wait for the first frame of a stream.
	answerWait = 3 * time.Second
)

// nodeCalls makes calls and opens streams on one node, each with a token of its own.
type nodeCalls struct {
	node     int
	messages parleyv1connect.MessageServiceClient
	presence parleyv1connect.PresenceServiceClient
	queues   parleyv1connect.QueueServiceClient
	topics   parleyv1connect.AdminServiceClient
	admin    parleyv1connect.AdminServiceClient
}

func newNodeCalls(client *http.Client, node int, addr string) *nodeCalls {
	url := "http://" + addr
	return &nodeCalls{
		node:     node,
		messages: parleyv1connect.NewMessageServiceClient(client, url, connect.WithGRPC()),
		presence: parleyv1connect.NewPresenceServiceClient(client, url),
		queues:   parleyv1connect.NewQueueServiceClient(client, url, connect.WithGRPC()),
		topics:   parleyv1connect.NewAdminServiceClient(client, url),
		admin:    parleyv1connect.NewAdminServiceClient(client, url),
	}
}

// call is a unary call for a user, and opener opens a stream.
type (
	call   func(ctx context.Context, n *nodeCalls, user string) error
	opener func(ctx context.Context, n *nodeCalls, user string) (stream, error)
)

// stream is a stream of the server. Close does not wait for its end.
type stream interface {
	Receive() bool
	Err() error
	Close() error
}

// calls are unary calls of all services, by name. None changes anything. The tokens lack the
// capabilities of some: it is refused after the token is admitted.
var calls = map[string]call{
	"ListChannels": func(ctx context.Context, n *nodeCalls, _ string) error {
		_, err := n.messages.ListChannels(ctx, &parleyv1.ListChannelsRequest{})
		return err
	},
	"ListSessions": func(ctx context.Context, n *nodeCalls, _ string) error {
		_, err := n.messages.ListSessions(ctx, &parleyv1.ListSessionsRequest{})
		return err
	},
	"GetPresence": func(ctx context.Context, n *nodeCalls, user string) error {
		_, err := n.presence.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: []string{user}})
		return err
	},
	"Leave": func(ctx context.Context, n *nodeCalls, _ string) error {
		_, err := n.queues.Leave(ctx, &parleyv1.LeaveRequest{SessionId: "none"})
		return err
	},
	"ListTopics": func(ctx context.Context, n *nodeCalls, _ string) error {
		_, err := n.topics.ListTopics(ctx, &parleyv1.ListTopicsRequest{})
		return err
	},
	"ListRevocations": func(ctx context.Context, n *nodeCalls, _ string) error {
		_, err := n.admin.ListRevocations(ctx, &parleyv1.ListRevocationsRequest{})
		return err
	},
}

// openers open streams of all services, by name.
var openers = map[string]opener{
	"Connect": func(ctx context.Context, n *nodeCalls, user string) (stream, error) {
		s, err := n.presence.Connect(ctx, &parleyv1.ConnectRequest{Invisible: true, Watch: []string{user}})
		if err != nil {
			return nil, err
		}
		return s, nil
	},
	"Subscribe": func(ctx context.Context, n *nodeCalls, user string) (stream, error) {
		s, err := n.messages.Subscribe(ctx, &parleyv1.SubscribeRequest{
			Channels: []*parleyv1.ChannelPosition{{ChannelId: channelOf(user)}},
		})
		if err != nil {
			return nil, err
		}
		return s, nil
	},
	"Consume": func(ctx context.Context, n *nodeCalls, _ string) (stream, error) {
		s, err := n.queues.Consume(ctx, consumption)
		if err != nil {
			return nil, err
		}
		return s, nil
	},
	"StreamingConsume": func(ctx context.Context, n *nodeCalls, _ string) (stream, error) {
		s, err := n.queues.StreamingConsume(ctx)
		if err != nil {
			return nil, err
		}
		// If the server has ended the stream already, Receive has its error.
		_ = s.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consumption}})
		return &twoWay{stream: s}, nil
	},
}

var consumption = &parleyv1.ConsumeRequest{Topics: []string{topic}, Group: group, Consumer: "thief"}

// twoWay makes a stream in both directions a stream.
type twoWay struct {
	stream *connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]
	err    error
}

// Receive reports whether there was another frame.
func (t *twoWay) Receive() bool {
	_, t.err = t.stream.Receive()
	return t.err == nil
}

// Err returns the error with which the stream ended.
func (t *twoWay) Err() error { return t.err }

// Close closes both directions.
func (t *twoWay) Close() error {
	_ = t.stream.CloseRequest()
	return t.stream.CloseResponse()
}

// as returns a context whose call has a token.
func as(ctx context.Context, token string) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+token)
	return ctx
}

var errNoFrame = errors.New("the stream ended without a frame")

// held is an open stream.
type held struct {
	trial  trial
	stream stream
	cancel context.CancelFunc
	// released is set once the client has ended it.
	released atomic.Bool
}

// open opens a stream and waits for its first frame. If there is none, it returns nil, what that
// says about the token, and why.
func (n *nodeCalls) open(ctx context.Context, t trial, token string) (*held, answer, error) {
	ctx, cancel := context.WithCancel(as(ctx, token))
	timer := time.AfterFunc(answerWait, cancel)
	s, err := openers[t.kind](ctx, n, t.login.user)
	if err == nil {
		if s.Receive() && timer.Stop() {
			return &held{trial: t, stream: s, cancel: cancel}, admitted, nil
		}
		err = s.Err()
		_ = s.Close()
	}
	timer.Stop()
	cancel()
	if err == nil {
		return nil, unknown, errNoFrame
	}
	return nil, answerOf(err), err
}

// release ends the stream. It may be called again.
func (h *held) release() {
	h.released.Store(true)
	h.cancel()
}

// wait waits until the stream ends, and releases it after the limit. It returns what the end says
// about the token, when it was, and whether the stream was released.
func (h *held) wait(limit time.Duration) (a answer, at time.Time, released bool) {
	timer := time.AfterFunc(limit, h.release)
	for h.stream.Receive() {
	}
	at, released = time.Now(), h.released.Load()
	timer.Stop()
	h.cancel()
	err := h.stream.Err()
	_ = h.stream.Close()
	if err == nil {
		return unknown, at, released // asked to reconnect
	}
	return answerOf(err), at, released
}

// createTopic creates the topic and its group, unless they exist. While the node is not able to, it
// tries again.
func createTopic(ctx context.Context, n *nodeCalls, token string) error {
	for {
		_, err := n.topics.CreateTopic(as(ctx, token), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: topic, Partitions: 1}})
		if err == nil || connect.CodeOf(err) == connect.CodeAlreadyExists {
			_, err = n.topics.CreateGroup(as(ctx, token), &parleyv1.CreateGroupRequest{Topic: topic, Group: &parleyv1.Group{Name: group}})
		}
		switch {
		case err == nil || connect.CodeOf(err) == connect.CodeAlreadyExists:
			return nil
		case answerOf(err) != unknown && connect.CodeOf(err) != connect.CodeUnavailable:
			return fmt.Errorf("create the topic %s: %w", topic, err)
		}
		if err := sleep(ctx, reopenAfter); err != nil {
			return err
		}
	}
}
