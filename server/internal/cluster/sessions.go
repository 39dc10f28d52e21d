package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/gen/go/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
)

// sessionWait is how long a node is waited for that holds a stream.
const sessionWait = 2 * time.Second

// Hub holds this node's streams; fanout.Hub is one.
type Hub interface {
	// Session finds a live session of the subject's, or is SESSION_NOT_FOUND.
	Session(id, subject string) (*fanout.Session, error)
}

// Peers tell of the nodes that live; a Roster does.
type Peers interface {
	// ID is this node's.
	ID() string
	// Lives reports whether a node was heard of just now.
	Lives(node string) bool
}

// Sessions changes the channels of live streams, on whichever node they are. Safe for concurrent use.
type Sessions struct {
	peers     Peers
	transport Transport
	log       *slog.Logger
	// readable is Guard's; nil asks nobody.
	readable func(ctx context.Context, subject string, channelIDs []string) (refused []string, err error)
	// update changes a stream of this node's.
	update func(sessionID, subject string, add []fanout.Position, remove []string) error

	mu     sync.Mutex // guards cancel
	cancel func()
}

// NewSessions makes Sessions over this node's hub, whose session ids must end with the node's id. logger is slog.Default
// if nil.
func NewSessions(peers Peers, transport Transport, hub Hub, logger *slog.Logger) *Sessions {
	return &Sessions{
		peers: peers, transport: transport, log: cmp.Or(logger, slog.Default()),
		update: func(sessionID, subject string, add []fanout.Position, remove []string) error {
			session, err := hub.Session(sessionID, subject)
			if err != nil {
				return err
			}
			return session.Update(add, remove)
		},
	}
}

// Guard has readable asked, before a stream of this node's is changed for another node, which of the channels to be added
// the subject may not read. The node that asks has looked too, but its request may have lain in a stalled link since.
// Call it before Start.
func (s *Sessions) Guard(readable func(ctx context.Context, subject string, channelIDs []string) (refused []string, err error)) {
	s.readable = readable
}

// Start lets other nodes change this one's streams, until Stop. A second Start does nothing.
func (s *Sessions) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		return nil
	}
	cancel, err := s.transport.Serve(s.peers.ID(), topicSession, s.serve)
	if err != nil {
		return fmt.Errorf("serve changes of streams: %w", err)
	}
	s.cancel = cancel
	return nil
}

// Stop ends what Start began and waits for what is under way. It may be called twice, and before Start.
func (s *Sessions) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
}

// Update changes the channels of the subject's live stream, as fanout.Session.Update does; that the subject may have
// them is the caller's to know. A stream that is nowhere, or another's, is SESSION_NOT_FOUND. A node that can't be
// reached is Unavailable: with OUTCOME_UNKNOWN if it may have made the change, which may be asked for again.
func (s *Sessions) Update(
	ctx context.Context, sessionID, subject string, add []fanout.Position, remove []string,
) error {
	if len(sessionID) <= idLen {
		return sessionNotFound()
	}
	node := sessionID[len(sessionID)-idLen:]
	if node == s.peers.ID() {
		return s.update(sessionID, subject, add, remove)
	}
	payload, err := proto.Marshal(updateToWire(sessionID, subject, add, remove))
	if err != nil {
		return fmt.Errorf("ask for a change of a stream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	answer, err := s.transport.Request(ctx, node, topicSession, payload)
	switch {
	case err == nil:
	case errors.Is(err, ErrCutOff), errors.Is(err, ErrNobody) && (s.peers.Lives(node) || ctx.Err() != nil):
		return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable,
			"the node that holds the stream can't be reached; nothing was changed")
	case errors.Is(err, ErrNobody):
		return sessionNotFound()
	default:
		return unsureUpdate(err)
	}
	var w clusterv1.UpdateSessionResponse
	if err := proto.Unmarshal(answer, &w); err != nil {
		return unsureUpdate(err)
	}
	return faultFromWire(w.GetFault())
}

// serve answers another node.
func (s *Sessions) serve(ctx context.Context, payload []byte) []byte {
	var w clusterv1.UpdateSessionRequest
	err := proto.Unmarshal(payload, &w)
	if err == nil {
		add, remove := updateFromWire(&w)
		if err = s.check(ctx, w.GetSubject(), add); err == nil {
			err = s.update(w.GetSessionId(), w.GetSubject(), add, remove)
		}
	}
	if _, ok := fault.As(err); err != nil && !ok {
		s.log.ErrorContext(ctx, "change a stream for another node", "error", err)
	}
	answer, err := proto.Marshal(&clusterv1.UpdateSessionResponse{Fault: faultToWire(err)})
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

func updateToWire(sessionID, subject string, add []fanout.Position, remove []string) *clusterv1.UpdateSessionRequest {
	w := &clusterv1.UpdateSessionRequest{SessionId: sessionID, Subject: subject, Remove: remove}
	for _, p := range add {
		w.Add = append(w.Add, &clusterv1.Position{
			ChannelId: p.ChannelID, AfterSeq: p.After, Epoch: p.Epoch, Exempt: p.Exempt,
		})
	}
	return w
}

func updateFromWire(w *clusterv1.UpdateSessionRequest) (add []fanout.Position, remove []string) {
	for _, p := range w.GetAdd() {
		add = append(add, fanout.Position{
			ChannelID: p.GetChannelId(), After: p.AfterSeq, Epoch: p.GetEpoch(), Exempt: p.GetExempt(),
		})
	}
	return add, w.GetRemove()
}

func sessionNotFound() error {
	return fault.New(fault.NotFound, fault.SessionNotFound, "no such live stream")
}

func unsureUpdate(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
		"the node that holds the stream did not answer: it is not known whether its channels were changed")
}
