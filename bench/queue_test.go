package bench_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	figures := measure(t, "queue", tiny(t))
	if diff := cmp.Diff([]string{
		"queue/aof/rate", "queue/aof/cpu",
		"queue/aof/rate/jetstream", "queue/aof/cpu/jetstream", "queue/aof/rate/jetstream-unconfirmed", "queue/aof/cpu/jetstream-unconfirmed",
		"queue/aof/keyed/rate", "queue/aof/keyed/cpu", "queue/aof/keyed/rate/jetstream", "queue/aof/keyed/cpu/jetstream",
		"queue/aof/plain/rate", "queue/aof/plain/cpu",
		"queue/none/rate", "queue/none/cpu",
		"queue/none/rate/jetstream", "queue/none/cpu/jetstream", "queue/none/rate/jetstream-unconfirmed", "queue/none/cpu/jetstream-unconfirmed",
	}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	bars := map[string]float64{"queue/aof/rate": 0.35, "queue/aof/keyed/rate": 0.35, "queue/aof/plain/rate": 0.5, "queue/none/rate": 0.35}
	for _, f := range figures {
		if f.Value.Median <= 0 || f.Floor == nil || f.Floor.Median <= 0 || f.Ratio == nil {
			t.Errorf("%s: %v against %v", f.ID, f.Value, f.Floor)
		}
		kept, jetStream := "append-only file", "messages in files"
		if strings.HasPrefix(f.ID, "queue/none/") {
			kept, jetStream = "no persistence", "memory only"
		}
		if !strings.Contains(f.Setup["redis"], kept) {
			t.Errorf("%s: redis %q, want %q", f.ID, f.Setup["redis"], kept)
		}
		least, barred := bars[f.ID]
		if barred != (f.BarMet != nil) || barred && *f.BarMet != (f.Ratio.Median >= least) {
			t.Errorf("%s: ratio %v, bar met: %v", f.ID, f.Ratio, f.BarMet)
		}
		notes := strings.Join(f.Notes, "\n")
		told := strings.Contains(notes, jetStream) && strings.Contains(notes, "nats-server ")
		if strings.Contains(f.ID, "/rate/jetstream") && !told {
			t.Errorf("%s: the notes do not say what JetStream keeps and what its server costs: %q", f.ID, notes)
		}
	}
	if notes := figures[0].Notes; !strings.Contains(strings.Join(notes, "\n"), "asynq and BullMQ were left out") {
		t.Errorf("nobody is told that rivals were left out: %q", notes)
	}
}

func TestQueueRequiresRivals(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Rivals = t.TempDir()
	err := bench.Run(t.Context(), area(t, "queue"), options, &collector{})
	if err == nil || !strings.Contains(err.Error(), "make rivals") {
		t.Errorf("rivals that are not there: %v", err)
	}
}

func TestQueueLatency(t *testing.T) {
	t.Parallel()
	figures := measure(t, "queue-latency", tiny(t))
	if diff := cmp.Diff([]string{
		"queue-latency/paced/p99", "queue-latency/paced/p50", "queue-latency/paced/max", "queue-latency/idle/p99", "queue-latency/idle/p50",
	}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Value.Median <= 0 || f.Floor.Median <= 0 {
			t.Errorf("%s: %v against %v", f.Name, f.Value, f.Floor)
		}
	}
	p99, p50, longest := figures[0].Value.Median, figures[1].Value.Median, figures[2].Value.Median
	if p50 > p99 || p99 > longest {
		t.Errorf("p50 %v, p99 %v, longest %v", p50, p99, longest)
	}
}

func TestQueueDelay(t *testing.T) {
	t.Parallel()
	figures := measure(t, "queue-delay", tiny(t))
	if diff := cmp.Diff([]string{"queue-delay/p99", "queue-delay/early", "queue-delay/p50", "queue-delay/max"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	if early := figures[1]; early.Value.Max != 0 || early.BarMet == nil || !*early.BarMet {
		t.Errorf("%v came early, bar met: %v", early.Value, early.BarMet)
	}
	if late := figures[0]; late.Value.Median <= 0 || late.Floor.Median <= 0 {
		t.Errorf("late by %v against %v", late.Value, late.Floor)
	}
}

func TestQueueGrowth(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Duration = time.Second // CPU time counts in steps of 10 ms
	figures := measure(t, "queue-growth", options)
	if diff := cmp.Diff([]string{"queue-growth/cpu"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	if f := figures[0]; f.Ratio == nil || f.BarMet == nil || *f.BarMet != (f.Ratio.Median <= 1.2) {
		t.Errorf("ratio %v, bar met: %v", f.Ratio, f.BarMet)
	}
}

func TestQueueTelemetry(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Duration = time.Second
	figures := measure(t, "queue-telemetry", options)
	if diff := cmp.Diff([]string{"queue-telemetry/cpu"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	if f := figures[0]; f.Ratio == nil || f.BarMet == nil || *f.BarMet != (f.Ratio.Median <= 1.05) {
		t.Errorf("ratio %v, bar met: %v", f.Ratio, f.BarMet)
	}
}

func TestQueueShare(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Duration = 2 * time.Second
	figures := measure(t, "queue-share", options)
	if diff := cmp.Diff([]string{"queue-share/workers", "queue-share/key", "queue-share/crash"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Value.Median <= 0 {
			t.Errorf("%s: %v", f.ID, f.Value)
		}
	}
	if crash := figures[2].Value.Median; crash > 40 {
		t.Errorf("the messages of a killed worker were handled after %v s", crash)
	}
}
