package messages

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// The names of broken promises about what clients do not see.
const (
	// Memory: after all clients have gone, a node has more in memory than it needs, or counts bytes
	// that no client read.
	Memory chaos.Name = "memory"
	// OverBudget: the calls of a run cost more requests to an engine than they may.
	OverBudget chaos.Name = "over-budget"
)

// Usage is what a node has in memory after all clients have gone.
type Usage struct {
	Node string `json:"node"`
	// Heap is the size of the heap after a collection, in bytes. Unread is the number of bytes that
	// clients did not read.
	Heap   int64 `json:"heap"`
	Unread int64 `json:"unread"`
	// Err is set if the node could not be asked.
	Err string `json:"err,omitempty"`
}

// Cost is what all nodes cost an engine from the begin of a run until its last message was sent.
type Cost struct {
	Engine     rig.Engine `json:"engine"`
	RoundTrips int64      `json:"round_trips"`
}

// heapLimit is the most that a node's heap may have after a run. The largest after a short run
// was 27 MiB.
const heapLimit = 64 << 20

// budget is the most round trips that a run may cost an engine.
type budget struct {
	// call is for each call, life for each channel that a stream follows, channel for each channel on
	// each node, and second for the work of all nodes in the background, in one second.
	call, life, channel, second int64
	// piece is for each piece of the text of an open message.
	piece int64
}

// budgets are one and a half to three times what runs without a defect cost.
var budgets = map[rig.Engine]budget{
	rig.EngineMongo: {call: 15, life: 2, channel: 10, second: 60, piece: 1},
	rig.EngineRedis: {call: 8, life: 1, channel: 2, second: 100, piece: 4},
}

// countCost records the round trips to the engines so far.
func (r *run) countCost() {
	for e := range budgets {
		c := Cost{Engine: e}
		for i := range r.addrs {
			c.RoundTrips += r.Fleet.Link(i, e).RoundTrips()
		}
		r.rec.Write(line{Cost: &c})
	}
}

// emptyLimit is how long nodes may take to release what was in memory for clients that have gone.
const emptyLimit = 10 * time.Second

// measure records the usage of every node, once that is below the limits, or after emptyLimit.
func (r *run) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, emptyLimit)
	defer cancel()
	for i, addr := range r.addrs {
		u := Usage{Node: addr}
		for {
			u.read(context.WithoutCancel(ctx), r.Fleet.Node(i).OpsAddr())
			if u.broken() == "" || !chaos.Sleep(ctx, 500*time.Millisecond) {
				break
			}
		}
		r.rec.Write(line{Usage: &u})
	}
}

// read asks the node's ops address.
func (u *Usage) read(ctx context.Context, ops string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	u.Err = ""
	for _, page := range []struct {
		path, prefix string
		to           *int64
	}{
		{"/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc = ", &u.Heap},
		{"/metrics", "parley_unread_bytes", &u.Unread},
	} {
		n, err := numberOn(ctx, "http://"+ops+page.path, page.prefix)
		if err != nil {
			u.Err = err.Error()
		}
		*page.to = n
	}
}

// numberOn returns the last number of the first line with a prefix on a page.
func numberOn(ctx context.Context, url, prefix string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text := lines.Text(); strings.HasPrefix(text, prefix) {
			fields := strings.Fields(text)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			return int64(n), err
		}
	}
	return 0, fmt.Errorf("%s has no line that begins with %q", url, prefix)
}

// broken describes what is wrong with a usage. It returns "" if nothing is.
func (u *Usage) broken() string {
	switch {
	case u.Err != "":
		return u.Err
	case u.Heap > heapLimit:
		return fmt.Sprintf("its heap has %d MiB after a collection, and may have %d", u.Heap>>20, heapLimit>>20)
	case u.Unread > 0:
		return fmt.Sprintf("it counts %d unread bytes", u.Unread)
	}
	return ""
}

// checkUsage reports nodes that have too much in memory after a run, and a run that cost too much.
func (c *checker) checkUsage() {
	if c.h.Touched == 0 {
		return
	}
	if len(c.h.Usages) == 0 || len(c.h.Costs) == 0 {
		c.Reportf(chaos.Unobserved, "", 0, "neither memory nor cost was measured")
	}
	for i := range c.h.Usages {
		if u := &c.h.Usages[i]; u.broken() != "" {
			c.Reportf(Memory, "", 0, "%s, without clients: %s", u.Node, u.broken())
		}
	}
	for _, cost := range c.h.Costs {
		if most := c.h.budget(cost.Engine); cost.RoundTrips > most {
			c.Reportf(OverBudget, "", 0, "the run cost %d round trips to %s, and may cost %d", cost.RoundTrips, cost.Engine, most)
		}
	}
}

// budget returns the most round trips to an engine that the run may cost up to its last message.
func (h *History) budget(e rig.Engine) int64 {
	b := budgets[e]
	most := b.second*h.Touched/second + b.piece*int64(len(h.Pieces))
	for i := range h.Ops {
		if h.Ops[i].Begin < h.Touched {
			most += b.call
		}
	}
	for i := range h.Logins {
		if call := &h.Logins[i]; call.Begin < h.Touched && (call.accepted() || call.Kind == SignOut) {
			most += b.call
		}
	}
	channels := make(map[string]bool)
	for i := range h.Lives {
		if h.Lives[i].Begin < h.Touched {
			most += b.life
			channels[h.Lives[i].Channel] = true
		}
	}
	return most + b.channel*int64(len(channels)*len(h.Usages))
}
