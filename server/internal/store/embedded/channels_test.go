package embedded_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/store/storetest"
)

func TestChannelContract(t *testing.T) {
	t.Parallel()
	storetest.RunChannels(t, func(t *testing.T) func() message.Store {
		dir := t.TempDir()
		return func() message.Store {
			s, err := embedded.Open(dir, embedded.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}, func(s message.Store) storetest.ChannelStore { return s.(*embedded.Store).Channels() })
}

func TestErasures(t *testing.T) {
	t.Parallel()
	storetest.RunErasures(t, func(t *testing.T) func() message.Store {
		dir := t.TempDir()
		return func() message.Store {
			s, err := embedded.Open(dir, embedded.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}, func(s message.Store) erasure.Store { return s.(*embedded.Store).Erasures() })
}

func TestRevocations(t *testing.T) {
	t.Parallel()
	storetest.RunRevocations(t, func(t *testing.T) func() message.Store {
		dir := t.TempDir()
		return func() message.Store {
			s, err := embedded.Open(dir, embedded.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}, func(s message.Store) revocation.Store { return s.(*embedded.Store).Revocations() }, false)
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	storetest.RunAPIKeys(t, func(t *testing.T) func() message.Store {
		dir := t.TempDir()
		return func() message.Store {
			s, err := embedded.Open(dir, embedded.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}, func(s message.Store) apikey.Store { return s.(*embedded.Store).APIKeys() })
}

// TestRevocationsAreForgotten checks that expired revocations do not stay in the store.
func TestRevocationsAreForgotten(t *testing.T) {
	t.Parallel()
	s, err := embedded.Open(t.TempDir(), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	revoked := s.Revocations()
	now := time.Now()
	for i := range 1000 {
		// Each lives as long as a hundred calls take.
		at := now.Add(time.Duration(i) * time.Second)
		if err := revoked.Revoke(t.Context(), revocation.Entry{Key: fmt.Sprintf("s:%d", i), At: at, Until: at.Add(100 * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := revoked.List(t.Context(), "", 1000)
	if err != nil || len(left) < 100 || len(left) > 150 {
		t.Errorf("%d revocations are left, %v", len(left), err)
	}
}
