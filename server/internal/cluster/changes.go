package cluster

import (
	"cmp"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/channel"
)

// maxChangeUsers is the most users that one word names; of more, all are to be looked at.
const maxChangeUsers = 500

// Changes tells all nodes at once that users may have lost a channel. It is a hint, which may be lost: each node also
// asks the store. Safe for concurrent use.
type Changes struct {
	transport Transport
	log       *slog.Logger
}

// NewChanges makes Changes. logger is slog.Default if nil.
func NewChanges(transport Transport, logger *slog.Logger) *Changes {
	return &Changes{transport: transport, log: cmp.Or(logger, slog.Default())}
}

// Publish tells all nodes, this one too, and waits for nobody.
func (c *Changes) Publish(change channel.Change) {
	w := &clusterv1.MembershipChange{ChannelId: change.ChannelID}
	if len(change.UserIDs) <= maxChangeUsers {
		w.UserIds = change.UserIDs
	}
	payload, err := proto.Marshal(w)
	if err == nil {
		err = c.transport.Broadcast(topicMembers, payload)
	}
	if err != nil {
		c.log.Warn("nodes learn of a channel's members from the store alone", "channel_id", change.ChannelID, "error", err)
	}
}

// Listen has fn called with every change that a node tells of, one at a time, until cancel. fn must not block.
func (c *Changes) Listen(fn func(channel.Change)) (cancel func(), err error) {
	cancel, err = c.transport.Listen(topicMembers, func(payload []byte) {
		var w clusterv1.MembershipChange
		if err := proto.Unmarshal(payload, &w); err != nil || w.GetChannelId() == "" {
			c.log.Warn("a change of members can't be read", "error", err)
			return
		}
		fn(channel.Change{ChannelID: w.GetChannelId(), UserIDs: w.GetUserIds()})
	})
	if err != nil {
		return nil, fmt.Errorf("listen to changes of members: %w", err)
	}
	return cancel, nil
}
