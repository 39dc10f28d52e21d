package server

import (
	"fmt"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/store/redisrevoked"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// buildTokens builds what knows the API keys and the revoked tokens, and what ends streams.
func (s *Server) buildTokens(b *backends, tel *telemetry.Telemetry) (err error) {
	s.apiKeys = apikey.New(apikey.Config{Store: b.keys, Secret: b.store.Identity().Secret, Now: s.clock.Now, Logger: s.log})
	s.revocations = remote.NewRevocations(s.endpoint, func(e revocation.Entry) { s.revoked.Heard(e) }, s.log)
	s.revoked, err = revocation.New(revocation.Config{
		Store: b.revoked, Second: redisrevoked.New(b.redis, s.cfg.Redis.KeyPrefix, b.store.Identity().Name()),
		Announce: s.revocations.Publish, Owner: s.roster, Alone: s.dev, FailOpen: s.cfg.Redis.FailOpen, MaxTokenLife: s.cfg.Auth.MaxTokenLife,
		Now: s.clock.Now, Logger: s.log, Meter: tel.Meters.Meter(scope),
	})
	if err != nil {
		return err
	}
	s.kicks = remote.NewKicks(s.endpoint, s.revoked.Kick)
	return nil
}

// buildVerifier builds what verifies tokens, with all keys of the configuration.
func (s *Server) buildVerifier() error {
	auth := &s.cfg.Auth
	cfg := authn.Config{Issuer: auth.Issuer, Audience: auth.Audience, Keys: s.apiKeys, Logger: s.log}
	if auth.HS256Secret != "" {
		cfg.Secrets = append(cfg.Secrets, authn.Secret{Value: []byte(auth.HS256Secret.Reveal())})
	}
	for i := range auth.HS256Secrets {
		value, err := auth.HS256Secrets[i].Reveal()
		if err != nil {
			return fmt.Errorf("auth.hs256_secrets[%d].file: %w", i, err)
		}
		cfg.Secrets = append(cfg.Secrets, authn.Secret{ID: auth.HS256Secrets[i].ID, Value: []byte(value)})
	}
	var err error
	if cfg.PublicKeys, err = authn.ReadPublicKeys(auth.PublicKeys); err != nil {
		return fmt.Errorf("auth.public_keys: %w", err)
	}
	if auth.JWKSURL != "" {
		cfg.KeySets = append(cfg.KeySets, authn.KeySet{ID: "auth.jwks_url", URL: auth.JWKSURL})
	}
	for _, set := range auth.JWKS {
		cfg.KeySets = append(cfg.KeySets, authn.KeySet{ID: set.ID, URL: set.URL, Issuer: set.Issuer, Audience: set.Audience})
	}
	if s.verifier, err = authn.New(cfg); err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	return nil
}
