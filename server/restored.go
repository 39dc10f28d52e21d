package server

import (
	"context"
	"errors"
	"fmt"

	"buf.build/go/protovalidate"
	"github.com/google/uuid"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
)

// Erasure is an erasure that Restored repeats: a user, and the id of the job that erased the user.
type Erasure struct{ RequestID, UserID string }

// Restored prepares the configured MongoDB after a restore from a backup: it replaces the epoch of
// every log and returns the new one. No node may be running.
//
// Before that it starts a job for each of the erasures again, under a new id, because the backup
// may be older than they are. The jobs run once a node does. If one of the erasures could not be a
// request of EraseUser, it does nothing. After any other error it can be called again, and starts
// no job twice.
func Restored(ctx context.Context, cfg config.Config, erasures ...Erasure) (string, error) {
	if err := checkErasures(erasures); err != nil {
		return "", err
	}
	store, err := mongostore.Open(ctx, mongostore.Config{
		URI: cfg.Mongo.URI.Reveal(), Database: cfg.Mongo.Database, Shards: cfg.Shards,
	})
	if err != nil {
		return "", fmt.Errorf("open the store: %w", err)
	}
	return restored(ctx, store, store.Erasures(), erasures)
}

// RestoredDev is Restored for the data directory cfg.DataDir of a `parleyd dev`. It fails if that
// server is running, because the server holds the directory's lock.
func RestoredDev(ctx context.Context, cfg config.Config, erasures ...Erasure) (string, error) {
	if err := checkErasures(erasures); err != nil {
		return "", err
	}
	store, err := embedded.Open(devStoreDir(cfg.DataDir), embedded.Config{Shards: cfg.Shards})
	if err != nil {
		return "", fmt.Errorf("open the store: %w", err)
	}
	return restored(ctx, store, store.Erasures(), erasures)
}

// checkErasures returns an error that names the first invalid one of the erasures.
func checkErasures(erasures []Erasure) error {
	for i, e := range erasures {
		err := protovalidate.Validate(&parleyv1.EraseUserRequest{RequestId: e.RequestID, UserId: e.UserID})
		if err == nil && e.RequestID == "" {
			err = errors.New("request_id: it is missing")
		}
		if err != nil {
			return fmt.Errorf("erasure %d: %w", i+1, err)
		}
	}
	return nil
}

// restored is Restored for an open store, which it closes. The ids of the new jobs depend on the
// old epoch, so that a repeat finds them.
func restored(ctx context.Context, store message.Store, jobs erasure.Store, erasures []Erasure) (epoch string, err error) {
	defer func() { err = errors.Join(err, store.Close(ctx)) }()
	service, old := erasure.NewService(jobs, func() {}), store.Identity().Epoch
	for _, e := range erasures {
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(old+" "+e.RequestID)).String()
		if _, err := service.Erase(ctx, e.UserID, id); err != nil {
			return "", fmt.Errorf("repeat the erasure %s: %w", e.RequestID, err)
		}
	}
	return store.NewEpoch(ctx)
}
