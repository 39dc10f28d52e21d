package server

import (
	"context"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/rpc"
	"github.com/parleyhq/parley/server/internal/store/redispresence"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// buildPresence creates the hub of presence, its bus and the calls about its streams, without
// starting them. It does not use Redis.
func (s *Server) buildPresence(b *backends, tel *telemetry.Telemetry) {
	c := &s.cfg.Presence
	s.presenceBus = remote.NewPresenceBus(s.endpoint, s.log)
	s.presence = presence.NewHub(presence.Config{
		Store:   redispresence.New(b.redis, redispresence.Config{Prefix: s.cfg.Redis.KeyPrefix, TTL: c.TTL}),
		Bus:     s.presenceBus,
		Owner:   s.roster,
		Members: channelMembers{b.channels},
		Node:    s.roster.ID(),
		TTL:     c.TTL, LeaseTTL: c.LeaseTTL, OfflineAfter: orNone(c.OfflineAfter),
		FlushInterval: c.FlushInterval, FlushUsers: c.FlushUsers, Workers: c.Workers,
		Cache: presence.CacheMode(c.Cache), CacheUsers: c.CacheUsers, MaxStaleness: c.MaxStaleness, Policy: presence.Policy(c.LoginPolicy),
		HeartbeatInterval: s.cfg.Limits.HeartbeatInterval, MaxStreams: c.Connections, MaxPerSubject: c.ConnectionsPerSubject,
		MaxWatched: c.WatchedUsers, MaxChannels: c.WatchedChannels,
		Logger: s.log, Meter: tel.Meters.Meter(scope), Tracer: tel.Tracers.Tracer(scope),
	})
	s.presenceCalls = remote.NewPresenceStreams(s.endpoint, s.presence)
	b.bus.OnReconnect(s.presence.Reconnected)
}

// addPresence sets the fields of deps that serve PresenceService. access limits who may watch whom,
// if that is configured.
func (s *Server) addPresence(deps *rpc.Deps, access *channel.Access) {
	deps.Presence, deps.PresenceCalls = rpc.HubPresence{Hub: s.presence}, s.presenceCalls
	if s.cfg.Presence.Watch == config.WatchSharedChannel {
		deps.Acquaintances = access
	}
}

// orNone returns d for a configuration in which 0 means the default and a negative value none.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// streamsOf implements channel.Subscriptions with the streams of both hubs.
type streamsOf struct {
	events   *fanout.Hub
	presence *presence.Hub
}

// SubscribedSubjects implements channel.Subscriptions.
func (s streamsOf) SubscribedSubjects(channelID string, mode message.Mode) []string {
	subjects := s.events.SubscribedSubjects(channelID, mode)
	if mode != message.ModeOpen { // presence does not watch open channels
		subjects = append(subjects, s.presence.WatchingSubjects(channelID, mode == message.ModeDeleted)...)
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// Expel implements channel.Subscriptions.
func (s streamsOf) Expel(channelID, subject string, mode message.Mode) {
	s.events.Expel(channelID, subject, mode)
	if mode != message.ModeOpen {
		s.presence.Expel(channelID, subject, mode == message.ModeDeleted)
	}
}

// channelMembers implements presence.Members with the store of channels.
type channelMembers struct{ store channel.Store }

// Members implements presence.Members. It leaves out followers. A page costs one query, and more
// only if the channel has followers; the first one reads the channel's row too, and counts the
// members if it is full.
func (c channelMembers) Members(ctx context.Context, channelID, after string, limit int) (users []string, total int, err error) {
	if after == "" {
		if err := c.checkMembersOnly(ctx, channelID); err != nil {
			return nil, 0, err
		}
	}
	for from, more := after, true; more && len(users) < limit; {
		page, err := c.store.Members(ctx, channelID, from, limit)
		if err != nil {
			return nil, 0, message.Unavailable(err)
		}
		more = len(page) == limit
		for i := range page {
			if from = page[i].UserID; page[i].IsMember() && len(users) < limit {
				users = append(users, from)
			}
		}
	}
	switch {
	case after != "":
		return users, 0, nil
	case len(users) < limit:
		return users, len(users), nil // they are all
	}
	if total, err = c.store.CountMembers(ctx, channelID); err != nil {
		return nil, 0, message.Unavailable(err)
	}
	return users, total, nil
}

// checkMembersOnly returns a fault unless the channel is members-only.
func (c channelMembers) checkMembersOnly(ctx context.Context, channelID string) error {
	rows, err := c.store.Rows(ctx, []string{channelID})
	if err != nil {
		return message.Unavailable(err)
	}
	row, ok := rows[channelID]
	switch {
	case !ok || row.State != channel.Live:
		f := fault.New(fault.NotFound, fault.ChannelNotFound, "channel_id: the channel does not exist")
		f.Field = "channel_id"
		return f
	case !row.MembersOnly:
		f := fault.New(fault.FailedPrecondition, fault.ChannelOpen, "channel_id: the channel is open, so it has no complete list of members")
		f.Field = "channel_id"
		return f
	default:
		return nil
	}
}
