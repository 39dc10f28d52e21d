package mongostore_test

import (
	"context"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/store/storetest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// open opens a store and closes it when the test ends.
func open(tb testing.TB, cfg mongostore.Config) *mongostore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := mongostore.Open(ctx, cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

func suite(uri string) storetest.Factory {
	return func(t *testing.T) func() message.Store {
		cfg := mongostore.Config{URI: uri, Database: testkit.MongoDatabase(t)}
		return func() message.Store { return open(t, cfg) }
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suite(testkit.MongoURI(t)))
}
