package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// holderWait is how long a node is waited for that holds a stream.
const holderWait = 2 * time.Second

// errNobodyHolds says that the node of a stream is gone, and the stream with it.
var errNobodyHolds = errors.New("no node holds the stream")

// Peers tell of the nodes that live; a Roster does.
type Peers interface {
	// ID is this node's.
	ID() string
	// Lives reports whether a node was heard of just now.
	Lives(node string) bool
}

// holder carries calls about live streams to the nodes that hold them. A stream's id ends with its node's. Safe for
// concurrent use.
type holder struct {
	peers     Peers
	transport Transport
	topic     string
	// answer does what another node asks about a stream of this one.
	answer func(ctx context.Context, payload []byte) []byte

	life lifecycle.Base
}

// start lets other nodes ask, until stop.
func (h *holder) start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		cancel, err := h.transport.Serve(h.peers.ID(), h.topic, h.answer)
		if err != nil {
			return fmt.Errorf("serve calls about streams: %w", err)
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		return nil
	})
}

// stop ends what start began and waits for what is under way.
func (h *holder) stop(ctx context.Context) error { return h.life.Stop(ctx) }

// node gives the node that a stream's id names; here is true if it is this one. An id that can be none names nobody.
func (h *holder) node(streamID string) (node string, here bool) {
	if len(streamID) <= idLen {
		return "", false
	}
	node = streamID[len(streamID)-idLen:]
	return node, node == h.peers.ID()
}

// ask has another node do what payload says. It fails with errNobodyHolds if that node is gone, and else with a fault of
// Kind Unavailable: with OUTCOME_UNKNOWN if the node may have done it.
func (h *holder) ask(ctx context.Context, node string, payload []byte) ([]byte, error) {
	if node == "" {
		return nil, errNobodyHolds
	}
	ctx, cancel := context.WithTimeout(ctx, holderWait)
	defer cancel()
	answer, err := h.transport.Request(ctx, node, h.topic, payload)
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, ErrCutOff), errors.Is(err, ErrNobody) && (h.peers.Lives(node) || ctx.Err() != nil):
		return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable,
			"the node that holds the stream can't be reached; nothing was changed")
	case errors.Is(err, ErrNobody):
		return nil, errNobodyHolds
	default:
		return nil, unanswered(err)
	}
}

// unanswered is the fault of a node that may have done what it was asked.
func unanswered(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
		"the node that holds the stream did not answer: it is not known whether anything was changed")
}
