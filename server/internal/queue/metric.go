package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Metrics counts what queues do. Its methods do nothing on a nil one. Safe for concurrent use.
//
// Instruments of the same meter are the same, so that the parts of a node may each have a Metrics of their own.
type Metrics struct {
	meter                                              metric.Meter
	produced, consumed, acked, retried, dead, released metric.Int64Counter
	handled, ackTook                                   metric.Float64Histogram
	inFlight, owned                                    metric.Int64UpDownCounter
	sets                                               attributeSets
}

// The results that Produced counts by.
const (
	ResultStored    = "stored"
	ResultScheduled = "scheduled"
	ResultDuplicate = "duplicate"
	ResultRefused   = "refused"
	ResultFailed    = "failed"
)

// noTrace is what measurements are made under: a batch belongs to no single call.
var noTrace = context.Background() //nolint:forbidigo // nothing ends by it

// latencyBounds are the histograms' buckets, in seconds.
var latencyBounds = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// NewMetrics makes the instruments. A nil meter gives ones that do nothing.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	if meter == nil {
		meter = noop.Meter{}
	}
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
		meter:    meter,
		produced: counter("produced", "Messages that producers sent, by outcome."),
		consumed: counter("consumed", "Deliveries to consumers, repeats included."),
		acked:    counter("acked", "Deliveries that were acknowledged."),
		retried:  counter("retried", "Attempts that failed and are followed by another one."),
		dead:     counter("dead_lettered", "Deliveries that became dead letters."),
		released: counter("released", "Deliveries that consumers returned unprocessed."),
		handled:  seconds("handle.duration", "Time from a delivery, or from when a handler began it if that is known, to its settlement."),
		ackTook:  seconds("ack.duration", "Time that the store took for a batch of settlements."),
		inFlight: updown("in_flight", "Deliveries that are not settled."),
		owned:    updown("partitions_owned", "Leases of partitions that this node holds."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("queue metrics: %w", err)
	}
	return m, nil
}

// Produced counts n messages to the partition; result is one of the Result constants.
func (m *Metrics) Produced(topic string, partition, n int, result string) {
	if m != nil && n > 0 {
		m.produced.Add(noTrace, int64(n), m.sets.get(series{topic: topic, partition: partition, result: result}))
	}
}

// Delivered counts n deliveries to consumers of the group.
func (m *Metrics) Delivered(topic string, partition int, group string, n int) {
	if m != nil && n > 0 {
		m.consumed.Add(noTrace, int64(n), m.sets.get(series{topic: topic, partition: partition, group: group}))
	}
}

// Settled counts n deliveries that ended by the verdict, each of which the consumer had for about as long as handle says;
// of several, the longest or the average will do.
func (m *Metrics) Settled(topic string, partition int, group string, v Verdict, n int, handle time.Duration) {
	if m == nil || n <= 0 {
		return
	}
	counter, result := m.acked, "acked"
	switch v {
	case Ack:
	case Retry:
		counter, result = m.retried, "retried"
	case Dead:
		counter, result = m.dead, "dead_lettered"
	case Release:
		counter, result = m.released, "released"
	}
	attributes := m.sets.get(series{topic: topic, partition: partition, group: group})
	counter.Add(noTrace, int64(n), attributes)
	// By topic, group and result alone: buckets times partitions would be too many series.
	m.handled.Record(noTrace, handle.Seconds(), m.sets.get(series{topic: topic, partition: -1, group: group, result: result}))
}

// AckTook records how long the store took to settle a batch of the group.
func (m *Metrics) AckTook(topic, group string, d time.Duration) {
	if m != nil {
		m.ackTook.Record(noTrace, d.Seconds(), m.sets.get(series{topic: topic, partition: -1, group: group}))
	}
}

// InFlight adds to the deliveries that the group has not settled; by is negative when some are.
func (m *Metrics) InFlight(topic string, partition int, group string, by int) {
	if m != nil && by != 0 {
		m.inFlight.Add(noTrace, int64(by), m.sets.get(series{topic: topic, partition: partition, group: group}))
	}
}

// Owned adds to the partitions that consumers of the group hold; by is negative when some are given up.
func (m *Metrics) Owned(topic, group string, by int) {
	if m != nil && by != 0 {
		m.owned.Add(noTrace, int64(by), m.sets.get(series{topic: topic, partition: -1, group: group}))
	}
}

// series is what a measurement is told by. Partition -1 and empty texts are left out.
type series struct {
	topic     string
	partition int
	group     string
	result    string
}

// maxSets bounds the attribute sets that are kept. Topics that come and go would otherwise leave theirs for good.
const maxSets = 1 << 16

// attributeSets keeps attribute sets made: to make one costs more than to count.
type attributeSets struct {
	made  sync.Map // series -> metric.MeasurementOption
	count atomic.Int64
}

func (a *attributeSets) get(s series) metric.MeasurementOption {
	if set, ok := a.made.Load(s); ok {
		return set.(metric.MeasurementOption) //nolint:forcetypeassert // nothing else is stored
	}
	if a.count.Add(1) > maxSets {
		a.made.Clear()
		a.count.Store(0)
	}
	set := metric.WithAttributeSet(s.set())
	a.made.Store(s, set)
	return set
}

func (s series) set() attribute.Set {
	attributes := []attribute.KeyValue{attribute.String("topic", s.topic)}
	if s.partition >= 0 {
		attributes = append(attributes, attribute.String("partition", strconv.Itoa(s.partition)))
	}
	if s.group != "" {
		attributes = append(attributes, attribute.String("group", s.group))
	}
	if s.result != "" {
		attributes = append(attributes, attribute.String("result", s.result))
	}
	return attribute.NewSet(attributes...)
}
