package remote

import (
	"cmp"
	"context"
	"log/slog"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// maxChangeUsers bounds the users that one event names. A change of more users is sent without
// names, which means all users of the channel.
const maxChangeUsers = 500

var membersChanged = cluster.Event[*clusterv1.MembershipChange]{Name: "members"}

// Changes announces to all nodes that users may have lost access to a channel. An announcement is a
// hint and may be lost: each node also queries the store. Safe for concurrent use.
type Changes struct {
	endpoint *cluster.Endpoint
	log      *slog.Logger
	onChange func(channel.Change)
	onJoin   func(channelID string)
	life     lifecycle.Base
}

// NewChanges creates a Changes. Between Start and Stop it calls onChange with every change that any
// node announces, one at a time. onChange must not block. A nil logger means slog.Default.
func NewChanges(endpoint *cluster.Endpoint, onChange func(channel.Change), logger *slog.Logger) *Changes {
	return &Changes{endpoint: endpoint, onChange: onChange, onJoin: func(string) {}, log: cmp.Or(logger, slog.Default())}
}

// OnJoin sets a function that is called like onChange, with the channels that Joined announces on
// any node. Call it before Start.
func (c *Changes) OnJoin(fn func(channelID string)) { c.onJoin = fn }

// Joined announces to all nodes that users have become members of a channel, as Publish does.
func (c *Changes) Joined(channelID string) {
	c.publish(&clusterv1.MembershipChange{ChannelId: channelID, Joined: true})
}

// Publish announces a change to all nodes, including this one, without waiting for delivery.
func (c *Changes) Publish(change channel.Change) {
	w := &clusterv1.MembershipChange{ChannelId: change.ChannelID}
	if len(change.UserIDs) <= maxChangeUsers {
		w.UserIds = change.UserIDs
	}
	c.publish(w)
}

func (c *Changes) publish(w *clusterv1.MembershipChange) {
	if err := cluster.Publish(c.endpoint, membersChanged, w); err != nil {
		c.log.Warn("publishing a membership change failed", "channel_id", w.GetChannelId(), "error", err)
	}
}

// Start subscribes to the announcements of all nodes. Publish works without it. See
// lifecycle.Service.
func (c *Changes) Start(ctx context.Context) error {
	return c.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		cancel, err := cluster.Subscribe(c.endpoint, membersChanged, c.changed)
		if err != nil {
			return err
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		return nil
	})
}

// Stop ends the subscription. Publish continues to work.
func (c *Changes) Stop(ctx context.Context) error { return c.life.Stop(ctx) }

func (c *Changes) changed(w *clusterv1.MembershipChange) {
	if w.GetChannelId() == "" {
		c.log.Warn("membership change without channel")
		return
	}
	if w.GetJoined() {
		c.onJoin(w.GetChannelId())
		return
	}
	c.onChange(channel.Change{ChannelID: w.GetChannelId(), UserIDs: w.GetUserIds()})
}
