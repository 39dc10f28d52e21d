package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// maxChangeUsers is the most users that one word names; of more, all are to be looked at.
const maxChangeUsers = 500

// Changes tells all nodes at once that users may have lost a channel. It is a hint, which may be lost: each node also
// asks the store. Safe for concurrent use.
type Changes struct {
	transport Transport
	log       *slog.Logger
	// onChange is told of every change.
	onChange func(channel.Change)
	life     lifecycle.Base
}

// NewChanges makes Changes. Between Start and Stop onChange is called with every change that a node tells of, one at a
// time; it must not block. logger is slog.Default if nil.
func NewChanges(transport Transport, onChange func(channel.Change), logger *slog.Logger) *Changes {
	return &Changes{transport: transport, onChange: onChange, log: cmp.Or(logger, slog.Default())}
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

// Start begins to listen to the nodes. Publish needs no Start. See lifecycle.Service.
func (c *Changes) Start(ctx context.Context) error {
	return c.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		cancel, err := c.transport.Listen(topicMembers, c.hear)
		if err != nil {
			return fmt.Errorf("listen to changes of members: %w", err)
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		return nil
	})
}

// Stop ends the listening.
func (c *Changes) Stop(ctx context.Context) error { return c.life.Stop(ctx) }

func (c *Changes) hear(payload []byte) {
	var w clusterv1.MembershipChange
	if err := proto.Unmarshal(payload, &w); err != nil || w.GetChannelId() == "" {
		c.log.Warn("a change of members can't be read", "error", err)
		return
	}
	c.onChange(channel.Change{ChannelID: w.GetChannelId(), UserIDs: w.GetUserIds()})
}
