package produce

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// outcome is what became of a message, as metrics name it.
type outcome uint8

// The outcomes, and their names.
const (
	resultStored outcome = iota
	resultScheduled
	resultDuplicate
	resultRefused
	resultFailed
)

var results = [...]string{"stored", "scheduled", "duplicate", "refused", "failed"}

// maxSets bounds the attribute sets that are kept. Topics that come and go would otherwise leave
// theirs forever.
const maxSets = 1 << 16

// Metrics counts messages that producers send. Its methods do nothing on a nil one. Safe for
// concurrent use.
type Metrics struct {
	messages metric.Int64Counter
	sets     sync.Map // series -> metric.MeasurementOption
	count    atomic.Int64
}

type series struct {
	topic     string
	partition int
	outcome   outcome
}

// NewMetrics creates the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	c, err := meter.Int64Counter("parley.queue.produced", metric.WithDescription("Messages that producers sent, by outcome."))
	if err != nil {
		return nil, fmt.Errorf("metrics of producers: %w", err)
	}
	return &Metrics{messages: c}, nil
}

// noTrace is the context of measurements: a batch belongs to no single call.
var noTrace = context.Background() //nolint:forbidigo // nothing ends with it

// produced counts n messages to a partition.
func (m *Metrics) produced(topic string, partition, n int, o outcome) {
	if m != nil && n > 0 {
		m.messages.Add(noTrace, int64(n), m.set(series{topic, partition, o}))
	}
}

// set returns the attributes of a series. It keeps them, because creating them costs more than
// counting.
func (m *Metrics) set(s series) metric.MeasurementOption {
	if set, ok := m.sets.Load(s); ok {
		return set.(metric.MeasurementOption) //nolint:forcetypeassert // nothing else is stored
	}
	if m.count.Add(1) > maxSets {
		m.sets.Clear()
		m.count.Store(0)
	}
	set := metric.WithAttributeSet(attribute.NewSet(attribute.String("topic", s.topic),
		attribute.String("partition", strconv.Itoa(s.partition)), attribute.String("result", results[s.outcome])))
	m.sets.Store(s, set)
	return set
}
