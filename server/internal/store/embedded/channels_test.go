package embedded_test

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/message"
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
