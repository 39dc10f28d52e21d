package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/servertest"
)

// TestInfo shows the version, limits and features of a real server, for humans and as JSON.
func TestInfo(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	env := map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.Token}
	objects := runWith(t, env, "", "info", "--json").wantOK(t).objects(t)
	if len(objects) != 1 || objects[0]["version"] == "" || !strings.Contains(fmt.Sprint(objects[0]["features"]), "queues") {
		t.Fatalf("info says %v", objects)
	}
	limits, _ := objects[0]["limits"].(map[string]any)
	want := map[string]float64{"max_content_bytes": 65536, "max_batch_messages": 500, "max_payload_bytes": 262144, "max_produce_messages": 1000}
	for name, limit := range want {
		if limits[name] != limit {
			t.Errorf("the limit %s is %v, want %v", name, limits[name], limit)
		}
	}
	for _, name := range []string{"max_channels_per_stream", "max_streams_per_subject", "max_consumers_per_subject", "heartbeat_interval_ms"} {
		if n, ok := limits[name].(float64); !ok || n <= 0 {
			t.Errorf("the limit %s is %v", name, limits[name])
		}
	}
	text := runWith(t, env, "", "info").wantOK(t).stdout
	for _, line := range []string{"version ", "features ", "queues", "65536 bytes", "heartbeat interval "} {
		if !strings.Contains(text, line) {
			t.Errorf("info, as text has no %q:\n%s", line, text)
		}
	}
}
