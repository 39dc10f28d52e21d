package cluster

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Event is one kind of broadcast to all nodes. It is a hint and may be lost. M is a pointer to a
// generated struct.
type Event[M proto.Message] struct {
	// Name is the transport's topic. It consists of A-Z a-z 0-9 _ - and is unique among methods and
	// events.
	Name string
}

// Publish sends an event to all nodes, including this one, without waiting for delivery. It fails
// if this node has no connection to the other nodes or the message is larger than about 1 MiB.
func Publish[M proto.Message](e *Endpoint, event Event[M], msg M) error {
	payload, err := encode(msg)
	if err != nil {
		return fmt.Errorf("publish %s: %w", event.Name, err)
	}
	if err := e.transport.Broadcast(event.Name, payload); err != nil {
		return fmt.Errorf("publish %s: %w", event.Name, err)
	}
	return nil
}

// Subscribe calls fn with every event that any node publishes, one at a time, until cancel is
// called. fn must not block. An event that can't be decoded is logged and dropped.
func Subscribe[M proto.Message](e *Endpoint, event Event[M], fn func(M)) (cancel func(), err error) {
	cancel, err = e.transport.Listen(event.Name, func(payload []byte) {
		msg, err := decode[M](payload)
		if err != nil {
			e.log.Warn("dropping an undecodable event", "event", event.Name, "error", err)
			return
		}
		fn(msg)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", event.Name, err)
	}
	return cancel, nil
}
