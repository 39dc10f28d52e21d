package remote

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/revocation"
)

var tokenRevoked = cluster.Event[*clusterv1.Revoked]{Name: "revoked"}

// Revocations announces to all nodes that tokens were revoked. An announcement may be lost: each
// node also asks the store. Safe for concurrent use.
type Revocations struct {
	endpoint *cluster.Endpoint
	log      *slog.Logger
	heard    func(revocation.Entry)
	life     lifecycle.Base
}

// NewRevocations creates a Revocations. Between Start and Stop it calls heard with every entry that
// any node announces, one at a time. heard must not block. A nil logger means slog.Default.
func NewRevocations(endpoint *cluster.Endpoint, heard func(revocation.Entry), logger *slog.Logger) *Revocations {
	return &Revocations{endpoint: endpoint, heard: heard, log: cmp.Or(logger, slog.Default())}
}

// Publish announces an entry to all nodes, including this one, without waiting for delivery.
func (r *Revocations) Publish(e revocation.Entry) {
	w := &clusterv1.Revoked{Key: e.Key, UntilMs: e.Until.UnixMilli()}
	if !e.Before.IsZero() {
		w.BeforeMs = e.Before.UnixMilli()
	}
	if err := cluster.Publish(r.endpoint, tokenRevoked, w); err != nil {
		r.log.Warn("publishing a revocation failed", "error", err)
	}
}

// Start subscribes to the announcements of all nodes. Publish works without it. See
// lifecycle.Service.
func (r *Revocations) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		cancel, err := cluster.Subscribe(r.endpoint, tokenRevoked, r.announced)
		if err != nil {
			return err
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		return nil
	})
}

// Stop ends the subscription. Publish continues to work.
func (r *Revocations) Stop(ctx context.Context) error { return r.life.Stop(ctx) }

func (r *Revocations) announced(w *clusterv1.Revoked) {
	if w.GetKey() == "" {
		r.log.Warn("revocation without a key")
		return
	}
	e := revocation.Entry{Key: w.GetKey(), Until: time.UnixMilli(w.GetUntilMs()).UTC()}
	if ms := w.GetBeforeMs(); ms != 0 {
		e.Before = time.UnixMilli(ms).UTC()
	}
	r.heard(e)
}
