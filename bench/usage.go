package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Usage is the resource usage of a target's processes.
type Usage struct {
	// CPU is user and system time since the processes started, in steps of 10 ms.
	CPU time.Duration
	// RSS is resident memory, in bytes.
	RSS float64
}

// metricsClient calls ops addresses. A server under load may answer slowly.
var metricsClient = &http.Client{Timeout: 15 * time.Second}

// Usage returns the sum of all nodes' usage, from their ops addresses.
func (t *Target) Usage(ctx context.Context) (Usage, error) {
	m, err := t.Metrics(ctx)
	if err != nil {
		return Usage{}, err
	}
	return Usage{
		CPU: time.Duration(m.Sum("process_cpu_seconds_total", "") * float64(time.Second)),
		RSS: m.Sum("process_resident_memory_bytes", ""),
	}, nil
}

// Metrics are the Prometheus metrics of one or more processes.
type Metrics []map[string]*dto.MetricFamily

// Metrics scrapes the metrics of all nodes.
func (t *Target) Metrics(ctx context.Context) (Metrics, error) {
	all := make(Metrics, 0, len(t.Ops))
	for _, ops := range t.Ops {
		m, err := scrape(ctx, ops+"/metrics")
		if err != nil {
			return nil, fmt.Errorf("read the server's metrics for CPU time and memory (--ops): %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := metricsClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Sum returns the sum of a counter or gauge over all labels and nodes, or the number of values of a
// histogram, or 0 if there is none. A label that is not empty, such as `result="miss"`, selects the
// series with that label.
func (m Metrics) Sum(name, label string) float64 {
	sum := 0.0
	for _, families := range m {
		for _, one := range families[name].GetMetric() {
			if label != "" && !hasLabel(one, label) {
				continue
			}
			sum += one.GetCounter().GetValue() + one.GetGauge().GetValue() + one.GetUntyped().GetValue() +
				float64(one.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// Has reports whether all nodes have the metric, even with value 0.
func (m Metrics) Has(name string) bool {
	for _, families := range m {
		if len(families[name].GetMetric()) == 0 {
			return false
		}
	}
	return true
}

func hasLabel(m *dto.Metric, label string) bool {
	for _, l := range m.GetLabel() {
		if fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()) == label {
			return true
		}
	}
	return false
}
