package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
)

// Hub holds this node's streams; fanout.Hub is one.
type Hub interface {
	// Session finds a live session of the subject's, or is STREAM_NOT_FOUND.
	Session(id, subject string) (*fanout.Session, error)
}

// Sessions changes the channels of live streams, on whichever node they are. Safe for concurrent use.
type Sessions struct {
	holder *holder
	log    *slog.Logger
	// readable is Guard's; nil asks nobody.
	readable func(ctx context.Context, subject string, channelIDs []string) (refused []string, err error)
	// update changes a stream of this node's.
	update func(streamID, subject string, add []fanout.Position, remove []string) error
}

// NewSessions makes Sessions over this node's hub, whose stream ids must end with the node's id. logger is slog.Default
// if nil.
func NewSessions(peers Peers, transport Transport, hub Hub, logger *slog.Logger) *Sessions {
	s := &Sessions{
		log: cmp.Or(logger, slog.Default()),
		update: func(streamID, subject string, add []fanout.Position, remove []string) error {
			session, err := hub.Session(streamID, subject)
			if err != nil {
				return err
			}
			return session.Update(add, remove)
		},
	}
	s.holder = &holder{peers: peers, transport: transport, topic: topicSession, answer: s.serve}
	return s
}

// Guard has readable asked, before a stream of this node's is changed for another node, which of the channels to be added
// the subject may not read. The node that asks has looked too, but its request may have lain in a stalled link since.
// Call it before Start.
func (s *Sessions) Guard(readable func(ctx context.Context, subject string, channelIDs []string) (refused []string, err error)) {
	s.readable = readable
}

// Start lets other nodes change this one's streams, until Stop. See lifecycle.Service.
func (s *Sessions) Start(ctx context.Context) error { return s.holder.start(ctx) }

// Stop ends what Start began and waits for what is under way.
func (s *Sessions) Stop(ctx context.Context) error { return s.holder.stop(ctx) }

// Update changes the channels of the subject's live stream, as fanout.Session.Update does; that the subject may have
// them is the caller's to know. A stream that is nowhere, or another's, is STREAM_NOT_FOUND. A node that can't be
// reached is Unavailable: with OUTCOME_UNKNOWN if it may have made the change, which may be asked for again.
func (s *Sessions) Update(
	ctx context.Context, streamID, subject string, add []fanout.Position, remove []string,
) error {
	node, here := s.holder.node(streamID)
	if here {
		return s.update(streamID, subject, add, remove)
	}
	payload, err := proto.Marshal(updateToWire(streamID, subject, add, remove))
	if err != nil {
		return fmt.Errorf("ask for a change of a stream: %w", err)
	}
	answer, err := s.holder.ask(ctx, node, payload)
	if errors.Is(err, errNobodyHolds) {
		return streamNotFound()
	}
	if err != nil {
		return err
	}
	var w clusterv1.UpdateStreamResponse
	if err := proto.Unmarshal(answer, &w); err != nil {
		return unanswered(err)
	}
	return faultFromWire(w.GetFault())
}

// serve answers another node.
func (s *Sessions) serve(ctx context.Context, payload []byte) []byte {
	var w clusterv1.UpdateStreamRequest
	err := proto.Unmarshal(payload, &w)
	if err == nil {
		add, remove := updateFromWire(&w)
		if err = s.check(ctx, w.GetSubject(), add); err == nil {
			err = s.update(w.GetStreamId(), w.GetSubject(), add, remove)
		}
	}
	if _, ok := fault.As(err); err != nil && !ok {
		s.log.ErrorContext(ctx, "change a stream for another node", "error", err)
	}
	answer, err := proto.Marshal(&clusterv1.UpdateStreamResponse{Fault: faultToWire(err)})
	if err != nil {
		s.log.ErrorContext(ctx, "answer a change of a stream", "error", err)
		return nil
	}
	return answer
}

// check refuses channels that the subject may not read any more.
func (s *Sessions) check(ctx context.Context, subject string, add []fanout.Position) error {
	if s.readable == nil {
		return nil
	}
	var ids []string
	for _, p := range add {
		if !p.Exempt {
			ids = append(ids, p.ChannelID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	refused, err := s.readable(ctx, subject, ids)
	if err != nil || len(refused) == 0 {
		return err
	}
	return fault.New(fault.PermissionDenied, fault.NotMember, "channel %s takes members only", refused[0])
}

func updateToWire(streamID, subject string, add []fanout.Position, remove []string) *clusterv1.UpdateStreamRequest {
	w := &clusterv1.UpdateStreamRequest{StreamId: streamID, Subject: subject, Remove: remove}
	for _, p := range add {
		w.Add = append(w.Add, &clusterv1.Position{
			ChannelId: p.ChannelID, AfterSeq: p.After, Epoch: p.Epoch, Exempt: p.Exempt,
		})
	}
	return w
}

func updateFromWire(w *clusterv1.UpdateStreamRequest) (add []fanout.Position, remove []string) {
	for _, p := range w.GetAdd() {
		add = append(add, fanout.Position{
			ChannelID: p.GetChannelId(), After: p.AfterSeq, Epoch: p.GetEpoch(), Exempt: p.GetExempt(),
		})
	}
	return add, w.GetRemove()
}

func streamNotFound() error {
	return fault.New(fault.NotFound, fault.StreamNotFound, "no such live stream")
}
