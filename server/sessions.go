package server

import (
	"context"

	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/session"
	"github.com/parleyhq/parley/server/internal/store/redistext"
)

// endSession deletes a session of a user who is erased.
func (s *Server) endSession(ctx context.Context, channelID string) error {
	if err := s.channels.EndSession(ctx, channelID); err != nil {
		return err
	}
	id, _ := ident.SessionOf(channelID) // an erasure ends sessions only
	s.sessions.Deleted(ctx, id)
	return nil
}

// sessionLog implements session.Log.
type sessionLog struct {
	message.OpenLister
	*message.Reader
}

// buildSessions builds what streams the texts of open messages.
func (s *Server) buildSessions(b *backends, reader *message.Reader) {
	log, mirror := sessionLog{b.store, reader}, redistext.New(b.redis, s.cfg.Redis.KeyPrefix)
	s.generations = session.NewGenerations(session.GenerationsConfig{
		Bus: b.bus, Mirror: mirror, Log: log, MaxText: s.cfg.Limits.SessionContentBytes,
		Idle: session.IdleFor(s.cfg.Sessions.OpenTimeout), Logger: s.log,
	})
	s.sessionPeers = remote.NewSessionPeers(s.endpoint, s.generations, s.log)
	s.closer = session.NewCloser(session.CloserConfig{
		Generations: s.generations, Peers: s.sessionPeers, Writer: s.forwards, Mirror: mirror, Log: log,
		Shards: b.store.Identity().Shards, Owns: s.roster.Owns, Timeout: s.cfg.Sessions.OpenTimeout,
		Every: s.cfg.Sessions.OpenTimeout / 12, Now: s.clock.Now, Logger: s.log,
	})
}
