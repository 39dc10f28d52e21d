package server

import (
	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/redisrevoked"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// buildTokens builds what knows the API keys and the revoked tokens, and what ends streams.
func (s *Server) buildTokens(b *backends, tel *telemetry.Telemetry) (err error) {
	s.apiKeys = apikey.New(apikey.Config{Store: b.keys, Secret: b.store.Identity().Secret, Now: s.clock.Now, Logger: s.log})
	s.revocations = remote.NewRevocations(s.endpoint, func(e revocation.Entry) { s.revoked.Heard(e) }, s.log)
	s.revoked, err = revocation.New(revocation.Config{
		Store: b.revoked, Second: redisrevoked.New(b.redis, s.cfg.Redis.KeyPrefix, b.store.Identity().Name()),
		Announce: s.revocations.Publish, Owner: s.roster, FailOpen: s.cfg.Redis.FailOpen, MaxTokenLife: s.cfg.Auth.MaxTokenLife,
		Now: s.clock.Now, Logger: s.log, Meter: tel.Meters.Meter(scope),
	})
	if err != nil {
		return err
	}
	s.kicks = remote.NewKicks(s.endpoint, s.revoked.Kick)
	return nil
}
