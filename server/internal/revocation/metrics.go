package revocation

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// measure creates the metrics.
func (l *List) measure(meter metric.Meter) (err error) {
	l.opened, err = meter.Int64Counter("parley.revocation.unknown_admitted",
		metric.WithDescription("Calls that were admitted although neither the store nor Redis could tell whether their token was revoked."))
	if err != nil {
		return err
	}
	l.refused, err = meter.Int64Counter("parley.revocation.unknown_refused",
		metric.WithDescription("Calls that were refused because neither the store nor Redis could tell whether their token was revoked."))
	if err != nil {
		return err
	}
	_, err = meter.Int64ObservableGauge("parley.revocation.entries",
		metric.WithDescription("Revocations that this node holds in memory."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			l.mu.RLock()
			defer l.mu.RUnlock()
			o.Observe(int64(len(l.tokens) + len(l.users)))
			return nil
		}))
	return err
}
