package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// bareServer is the minimal fan-out over connect-go, without tokens or a store. A message to a
// channel goes into a Go channel per stream. The stream's handler sends one response per event and
// encodes it each time, as connect does on its own.
type bareServer struct {
	parleyv1connect.UnimplementedMessageServiceHandler

	mu       sync.Mutex
	channels map[string]*bareChannel
}

type bareChannel struct {
	seq     int64
	streams map[chan *parleyv1.ChannelEvent]struct{}
}

// bareQueue is the maximum number of events that wait for one stream. The load never has as many in
// flight.
const bareQueue = 8192

// floorFanout serves a bareServer.
func floorFanout(ctx context.Context, _ []string, out *json.Encoder) error {
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewMessageServiceHandler(&bareServer{channels: make(map[string]*bareChannel)}))
	return serveFloor(ctx, mux, out)
}

// channel returns the channel with an id, and creates it if needed. The caller must hold mu.
func (s *bareServer) channel(id string) *bareChannel {
	c := s.channels[id]
	if c == nil {
		c = &bareChannel{streams: make(map[chan *parleyv1.ChannelEvent]struct{})}
		s.channels[id] = c
	}
	return c
}

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (s *bareServer) Subscribe(
	ctx context.Context, req *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	id := req.GetChannels()[0].GetChannelId()
	events := make(chan *parleyv1.ChannelEvent, bareQueue)
	s.mu.Lock()
	c := s.channel(id)
	c.streams[events] = struct{}{}
	head := c.seq
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(c.streams, events)
		s.mu.Unlock()
	}()
	e := &parleyv1.ChannelEvent{ChannelId: id, Seq: head, Event: &parleyv1.ChannelEvent_State{
		State: &parleyv1.ChannelState{HeadSeq: head, OldestSeq: 1},
	}}
	for {
		if err := stream.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{
			Events: &parleyv1.EventBatch{Events: []*parleyv1.ChannelEvent{e}},
		}}); err != nil {
			return err
		}
		select {
		case e = <-events:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SendMessage implements parleyv1connect.MessageServiceHandler.
func (s *bareServer) SendMessage(_ context.Context, req *parleyv1.SendMessageRequest) (*parleyv1.SendMessageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &parleyv1.SendMessageResponse{Seq: s.publish(req)}, nil
}

// SendMessages implements parleyv1connect.MessageServiceHandler.
func (s *bareServer) SendMessages(_ context.Context, req *parleyv1.SendMessagesRequest) (*parleyv1.SendMessagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]*parleyv1.SendResult, len(req.GetMessages()))
	for i, m := range req.GetMessages() {
		results[i] = &parleyv1.SendResult{
			Result: &parleyv1.SendResult_Sent{Sent: &parleyv1.SendMessageResponse{Seq: s.publish(m)}},
		}
	}
	return &parleyv1.SendMessagesResponse{Results: results}, nil
}

// publish sends a message to the channel's streams and returns its seq. The caller must hold mu.
func (s *bareServer) publish(m *parleyv1.SendMessageRequest) int64 {
	c := s.channel(m.GetChannelId())
	c.seq++
	e := &parleyv1.ChannelEvent{ChannelId: m.GetChannelId(), Seq: c.seq, FromSeq: c.seq, Event: &parleyv1.ChannelEvent_Sent{
		// A message of a real server has as many bytes.
		Sent: &parleyv1.ChannelMessage{
			MsgId: "019ab7c5-0000-7000-8000-000000000000", ChannelId: m.GetChannelId(), Seq: c.seq, Count: c.seq, FromId: "dev",
			MsgType: "text", Content: m.GetContent(), ClientMsgId: "019ab7c5-0000-7000-8000-000000000000",
			MsgTime: timestamppb.New(time.Now()), Status: parleyv1.MessageStatus_MESSAGE_STATUS_SENT, ChangedSeq: c.seq,
		},
	}}
	for events := range c.streams {
		select {
		case events <- e:
		default: // the stream's reader reports the hole
		}
	}
	return c.seq
}
