package natsbus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		readyAfter, cancelAfter, took time.Duration
		err                           error
	}{
		"ready":    {time.Second, time.Minute, time.Second, nil},
		"canceled": {time.Minute, time.Second, time.Second, context.Canceled},
		"never":    {time.Minute, time.Minute, readyWait, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(c.cancelAfter, cancel).Stop()
				began := time.Now()
				err := awaitReady(ctx, func(within time.Duration) bool {
					<-time.After(within)
					return time.Since(began) >= c.readyAfter
				})
				if took := time.Since(began); !errors.Is(err, c.err) || took < c.took || took > c.took+readyPoll {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// A Connect whose context has ended returns no Bus, which would keep reconnecting.
func TestConnectIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, Config{URL: "nats://127.0.0.1:1", Shards: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
