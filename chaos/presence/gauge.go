package presence

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// gauges are the names of a node's figures that must be 0 when it has no stream.
var gauges = []string{"parley_presence_connections", "parley_presence_users", "parley_presence_watchers"}

// readGauges reads the gauges of a node from its ops address.
func readGauges(ctx context.Context, ops string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	// Keep-alive is off: a connection broken by an earlier fault must not affect the read.
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	found := make(map[string]float64)
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		text := lines.Text()
		name, value := text[:strings.IndexAny(text+" ", " {")], text[strings.LastIndexByte(text, ' ')+1:]
		for _, gauge := range gauges {
			if name != gauge {
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found[gauge] += v
		}
	}
	return found, lines.Err()
}

// gaugeLimit is the time within which the gauges must be 0 after the last stream has ended.
const gaugeLimit = 10 * time.Second

// readAllGauges reads the gauges of all nodes until they are 0, for up to gaugeLimit.
func (r *run) readAllGauges(ctx context.Context, t *Truth) error {
	limit, cancel := context.WithTimeout(ctx, gaugeLimit)
	defer cancel()
	for {
		t.Gauges = make(map[string]map[string]float64)
		sum := 0.0
		for _, node := range r.Fleet.Nodes() {
			found, err := readGauges(ctx, node.OpsAddr())
			if err != nil {
				return fmt.Errorf("metrics of %s: %w", node.Addr(), err)
			}
			t.Gauges[node.Addr()] = found
			for _, v := range found {
				sum += v
			}
		}
		if sum == 0 || !chaos.Sleep(limit, 300*time.Millisecond) {
			return nil
		}
	}
}
