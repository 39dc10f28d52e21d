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

// Usage is what a target's processes have used so far, and hold.
type Usage struct {
	// CPU is user and system time since the processes began. It counts in hundredths of a second.
	CPU time.Duration
	// RSS is resident memory, in bytes.
	RSS float64
}

// metricsClient asks ops addresses. A server under load may take long.
var metricsClient = &http.Client{Timeout: 15 * time.Second}

// Usage sums what all nodes tell on their ops addresses.
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

// Metrics are the Prometheus metrics of one or several processes.
type Metrics []map[string]*dto.MetricFamily

// Metrics reads the metrics of all nodes.
func (t *Target) Metrics(ctx context.Context) (Metrics, error) {
	all := make(Metrics, 0, len(t.Ops))
	for _, ops := range t.Ops {
		m, err := scrape(ctx, ops+"/metrics")
		if err != nil {
			return nil, fmt.Errorf("the server's metrics, by which its CPU time and memory are known (--ops): %w", err)
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

// Sum adds up a counter or gauge over all its labels and all nodes, or a histogram's number of values; 0 if there is none.
// If label is not empty, as in `result="miss"`, only where that holds.
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

// Has reports whether all nodes tell a metric, be it 0.
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
