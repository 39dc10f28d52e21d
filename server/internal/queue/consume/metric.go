package consume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// latencyBounds are the buckets of the histograms, in seconds.
var latencyBounds = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// noTrace is the context of measurements: a batch belongs to no single call.
var noTrace = context.Background() //nolint:forbidigo // nothing ends with it

// Metrics are the instruments parley.queue.* about consumers. A nil one measures nothing. Safe for
// concurrent use. The holder of a lease counts what happens in its partition, the front node of a
// session the session.
type Metrics struct {
	consumed, acked, retried, dead, released, redelivered metric.Int64Counter
	handled, commits                                      metric.Float64Histogram
	inFlight, leases, sessions                            metric.Int64UpDownCounter
}

// NewMetrics creates the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	var errs []error
	counter := func(name, text string) metric.Int64Counter {
		c, err := meter.Int64Counter("parley.queue."+name, metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	updown := func(name, text string) metric.Int64UpDownCounter {
		c, err := meter.Int64UpDownCounter("parley.queue."+name, metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, text string) metric.Float64Histogram {
		h, err := meter.Float64Histogram("parley.queue."+name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(latencyBounds...))
		errs = append(errs, err)
		return h
	}
	m := &Metrics{
		consumed:    counter("consumed", "Deliveries to consumers, repeats included."),
		acked:       counter("acked", "Deliveries that were acknowledged."),
		retried:     counter("retried", "Attempts that failed and are followed by another one."),
		dead:        counter("dead_lettered", "Deliveries that became dead letters."),
		released:    counter("released", "Deliveries that consumers returned unprocessed."),
		redelivered: counter("redelivered", "Deliveries that are repeated and did not count as an attempt."),
		handled:     seconds("handle.duration", "Time from a delivery, or from when a handler began it if that is known, to its settlement."),
		commits:     seconds("ack.duration", "Time that the store took for a batch of settlements."),
		inFlight:    updown("in_flight", "Deliveries that are not settled."),
		leases:      updown("partitions_owned", "Leases of partitions that this node holds."),
		sessions:    updown("sessions", "Sessions of consumers on this node."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("metrics of consumers: %w", err)
	}
	return m, nil
}

// results are the outcomes of settlements, as metrics name them.
var results = [...]string{
	dispatch.Ack: "acked", dispatch.Retry: "retried", dispatch.DeadLetter: "dead_lettered", dispatch.Release: "released",
}

// holding counts what happens in a partition while a holder has it. It belongs to the holder's
// goroutine. A nil one counts nothing.
type holding struct {
	m *Metrics
	// partition, group and result are attributes. Creating them costs more than counting.
	partition, group metric.MeasurementOption
	result           [len(results)]metric.MeasurementOption
	// held: the lease is counted. inFlight are the deliveries that are.
	held     bool
	inFlight int
}

// holding returns the counts of a partition.
func (m *Metrics) holding(ref qlog.GroupRef) *holding {
	if m == nil {
		return nil
	}
	topic, group := attribute.String("topic", ref.Topic), attribute.String("group", ref.Group)
	h := &holding{
		m: m, group: metric.WithAttributeSet(attribute.NewSet(topic, group)),
		partition: metric.WithAttributeSet(attribute.NewSet(topic, group, attribute.String("partition", strconv.Itoa(ref.Partition)))),
	}
	for i, name := range results {
		// Without the partition: buckets times partitions would be too many series.
		h.result[i] = metric.WithAttributeSet(attribute.NewSet(topic, group, attribute.String("result", name)))
	}
	return h
}

// hold notes that the holder has the lease, or has it no longer.
func (h *holding) hold(held bool) {
	if h == nil || h.held == held {
		return
	}
	h.held = held
	if held {
		h.m.leases.Add(noTrace, 1, h.group)
		return
	}
	h.m.leases.Add(noTrace, -1, h.group)
	h.flying(0)
}

// flying notes how many deliveries are not settled.
func (h *holding) flying(n int) {
	if h != nil && n != h.inFlight {
		h.m.inFlight.Add(noTrace, int64(n-h.inFlight), h.partition)
		h.inFlight = n
	}
}

// delivered counts deliveries.
func (h *holding) delivered(n int) {
	if h != nil {
		add(h.m.consumed, int64(n), h.partition)
	}
}

// settled counts a settlement that is durable.
func (h *holding) settled(a *dispatch.Answer) {
	if h == nil || a.Verdict == 0 {
		return
	}
	h.m.handled.Record(noTrace, a.Took.Seconds(), h.result[a.Verdict])
	if a.Verdict == dispatch.Release {
		h.m.released.Add(noTrace, 1, h.partition)
	}
}

// committed counts what a commit did, which took the store so long.
func (h *holding) committed(c *qlog.Counters, took time.Duration) {
	if h == nil {
		return
	}
	h.m.commits.Record(noTrace, took.Seconds(), h.group)
	add(h.m.acked, c.Acked, h.partition)
	add(h.m.retried, c.Retried, h.partition)
	add(h.m.dead, c.Dead, h.partition)
	add(h.m.redelivered, c.Redelivered, h.partition)
}

func add(c metric.Int64Counter, n int64, of metric.MeasurementOption) {
	if n > 0 {
		c.Add(noTrace, n, of)
	}
}

// session notes that a session with a topic was added (by is 1) or removed (-1).
func (m *Metrics) session(topic, group string, by int) {
	if m != nil {
		m.sessions.Add(noTrace, int64(by), metric.WithAttributes(attribute.String("topic", topic), attribute.String("group", group)))
	}
}
