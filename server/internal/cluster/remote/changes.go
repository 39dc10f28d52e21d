package remote

import (
	"cmp"
	"log/slog"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster"
)

// maxChangeUsers bounds the users that one event names; more are sent as all.
const maxChangeUsers = 500

var membersChanged = cluster.Event[*clusterv1.MembershipChange]{Name: "members"}

// Changes announces to all nodes that users may have lost a channel. It is a hint, which may be lost: each node also asks
// the store. Safe for concurrent use.
type Changes struct {
	endpoint *cluster.Endpoint
	log      *slog.Logger
}

// NewChanges creates a Changes. A nil logger means slog.Default.
func NewChanges(endpoint *cluster.Endpoint, logger *slog.Logger) *Changes {
	return &Changes{endpoint: endpoint, log: cmp.Or(logger, slog.Default())}
}

// Publish announces a change to all nodes, this one too, and waits for nobody.
func (c *Changes) Publish(change channel.Change) {
	w := &clusterv1.MembershipChange{ChannelId: change.ChannelID}
	if len(change.UserIDs) <= maxChangeUsers {
		w.UserIds = change.UserIDs
	}
	if err := cluster.Publish(c.endpoint, membersChanged, w); err != nil {
		c.log.Warn("nodes learn of a channel's members from the store alone", "channel_id", change.ChannelID, "error", err)
	}
}

// Listen calls fn with every change that a node announces, one at a time, until cancel. fn must not block.
func (c *Changes) Listen(fn func(channel.Change)) (cancel func(), err error) {
	return cluster.Subscribe(c.endpoint, membersChanged, func(w *clusterv1.MembershipChange) {
		if w.GetChannelId() == "" {
			c.log.Warn("a change of members names no channel")
			return
		}
		fn(channel.Change{ChannelID: w.GetChannelId(), UserIDs: w.GetUserIds()})
	})
}
