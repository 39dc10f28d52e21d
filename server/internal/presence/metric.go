package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of connections and writes. Those of what the node knows of all users
// are in viewmetric.go. Safe for concurrent use.
type metrics struct {
	meter metric.Meter
	// err is why an instrument could not be created; nil if all were.
	err error

	changes, kicks, epochs, failures, sweptUsers metric.Int64Counter
	flushUsers                                   metric.Int64Histogram
	flushTook, sweepTook                         metric.Float64Histogram
	byCause                                      [Repaired + 1]metric.MeasurementOption
	byKick                                       [Replaced + 1]metric.MeasurementOption
}

// noTrace is the context of measurements that belong to no call.
var noTrace = context.Background() //nolint:forbidigo // nothing ends by it

func newMetrics(meter metric.Meter) *metrics {
	var errs []error
	counter := func(name, text string) metric.Int64Counter {
		c, err := meter.Int64Counter("parley.presence."+name, metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, text string) metric.Float64Histogram {
		h, err := meter.Float64Histogram("parley.presence."+name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
		errs = append(errs, err)
		return h
	}
	m := &metrics{
		meter:      meter,
		changes:    counter("changes", "Changes of users' states that this node has logged, by cause."),
		kicks:      counter("kicks", "Streams that a newer login or connection has ended, by cause."),
		epochs:     counter("epochs", "Epochs of shards that this node has opened: at the first start, after a flush and after a failover."),
		failures:   counter("store_failures", "Flushes to which the store did not respond."),
		sweptUsers: counter("swept_users", "Users whose part of a dead node this node has removed."),
		flushTook:  seconds("flush.duration", "Time that the store took for a flush."),
		sweepTook:  seconds("sweep.duration", "Time to remove the parts of a dead node in the shards of this node."),
	}
	var err error
	m.flushUsers, err = meter.Int64Histogram("parley.presence.flush.users", metric.WithDescription("Users of a flush."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500))
	if err = errors.Join(append(errs, err)...); err != nil {
		m.err = fmt.Errorf("presence metrics: %w", err)
	}
	for cause, name := range map[Cause]string{Connected: "connected", NodeLost: "node_lost", Repaired: "repaired"} {
		m.byCause[cause] = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", name)))
	}
	for cause, name := range map[KickCause]string{ByLogin: "login", Replaced: "replaced"} {
		m.byKick[cause] = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", name)))
	}
	return m
}

// logged counts the changes of an announcement.
func (m *metrics) logged(entries []Entry) {
	var counts [Repaired + 1]int64
	for i := range entries {
		if e := &entries[i]; e.Login == nil && e.Cause <= Repaired {
			counts[e.Cause]++
		}
	}
	for cause := Connected; cause <= Repaired; cause++ {
		if n := counts[cause]; n > 0 {
			m.changes.Add(noTrace, n, m.byCause[cause])
		}
	}
}

func (m *metrics) kicked(cause KickCause) { m.kicks.Add(noTrace, 1, m.byKick[cause]) }

// flushed records a flush, and whether the store responded.
func (m *metrics) flushed(users int, took time.Duration, responded bool) {
	m.flushUsers.Record(noTrace, int64(users))
	m.flushTook.Record(noTrace, took.Seconds())
	if !responded {
		m.failures.Add(noTrace, 1)
	}
}

func (m *metrics) swept(users int, took time.Duration) {
	m.sweptUsers.Add(noTrace, int64(users))
	m.sweepTook.Record(noTrace, took.Seconds())
}

// observe registers the numbers that are read when metrics are collected. unregister removes them.
func (m *metrics) observe(conns *connections, pending func() int) (unregister func(), err error) {
	if m.err != nil {
		return nil, m.err
	}
	var errs []error
	number := func(name, text string) metric.Int64ObservableUpDownCounter {
		n, err := m.meter.Int64ObservableUpDownCounter("parley.presence."+name, metric.WithDescription(text))
		errs = append(errs, err)
		return n
	}
	users := number("users", "Users with a connection on this node.")
	devices := number("connections", "Connections that make a device online on this node.")
	waiting := number("pending", "Users whose part waits to be written.")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("presence metrics: %w", err)
	}
	r, err := m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		u, c := conns.count()
		to.ObserveInt64(users, int64(u))
		to.ObserveInt64(devices, int64(c))
		to.ObserveInt64(waiting, int64(pending()))
		return nil
	}, users, devices, waiting)
	if err != nil {
		return nil, fmt.Errorf("observe presence: %w", err)
	}
	return func() { _ = r.Unregister() }, nil
}
