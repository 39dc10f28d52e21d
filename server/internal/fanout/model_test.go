package fanout

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

var (
	modelSeed = flag.Uint64("model.seed", 0, "seed of the model test; 0 takes random ones")
	modelRuns = flag.Int("model.runs", 6, "how many runs of the model test")
)

// TestModel runs many clients that follow many channels through a bus that loses, repeats, delays
// and reorders events, a log that is slow and fails, restores, cuts, reconnects and expulsions.
// Meanwhile users type. Every client must receive the log in order, without repeats and holes, and
// have all of it at the end. No stream may show a message in an older state than before.
func TestModel(t *testing.T) {
	t.Parallel()
	for run := range *modelRuns {
		seed := *modelSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprintf("run %d", run), func(t *testing.T) {
			t.Parallel()
			t.Logf("-model.seed=%d", seed)
			synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		})
	}
}

// model is one run of TestModel: a hub, its channels and the source of all random choices.
type model struct {
	*rig
	mu       sync.Mutex
	rng      *rand.Rand
	channels []string
	restores int
	// lossy is the percentage of events that the bus loses.
	lossy int
	// calm is set when writes are over, and ends the faults.
	calm bool
}

func (m *model) n(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *model) chance(percent int) bool { return m.n(100) < percent }

func (m *model) isCalm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calm
}

func runModel(t *testing.T, seed uint64) {
	cfg := Config{QueueEvents: 40, QueueBytes: 3000, ReplayFrameBytes: 300, FrameBytes: 2000, MaxStreamsPerSubject: 1000}
	m := &model{rig: setup(t, cfg), rng: rand.New(rand.NewPCG(seed, 1))}
	m.enc.copies = true
	m.lossy = m.n(4)
	for i := range 8 {
		id := fmt.Sprintf("c%d", i)
		m.channels = append(m.channels, id)
		m.log.addMany(id, m.n(200))
	}
	trouble := func(ctx context.Context, _ string) error {
		if m.isCalm() {
			return nil
		}
		switch m.n(20) {
		case 0:
			return errors.New("away")
		case 1:
			time.Sleep(time.Duration(m.n(3000)) * time.Millisecond)
		case 2, 3, 4, 5:
			time.Sleep(time.Duration(m.n(30)) * time.Millisecond)
		}
		return ctx.Err()
	}
	for _, point := range []int{beforeState, afterState, beforeReplay, afterReplay} {
		m.log.on(point, trouble)
	}
	var clients, writers sync.WaitGroup
	stop := make(chan struct{})
	all := make([]*client, 0, 30)
	for i := range 30 {
		c := &client{model: m, name: fmt.Sprintf("client-%d", i), views: map[string]*view{}}
		all = append(all, c)
		clients.Go(func() { c.run(stop) })
	}
	for _, id := range m.channels {
		writers.Go(func() { m.write(id) })
	}
	writers.Go(func() { m.expel(all) })
	writers.Wait()
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	time.Sleep(2 * time.Minute) // the checks find the last lost events
	close(stop)
	clients.Wait()
	events, losses := 0, 0
	for _, c := range all {
		c.atEnd(t)
		events += c.events
		losses += c.losses
	}
	st := &m.hub.stats
	t.Logf("%d events seen, %d cuts, %d fills, %d demotions, %d restores, %d failed reads, %d losses", events,
		st.cuts.Load(), st.fills.Load(), st.demoted.Load(), m.restores, st.readErrors.Load(), losses)
}

// write appends to a channel for about two minutes, in bursts and pauses, and publishes with badly.
func (m *model) write(id string) {
	for range 150 {
		switch m.n(10) {
		case 0:
			time.Sleep(time.Duration(m.n(5000)) * time.Millisecond)
		case 1, 2, 3:
			time.Sleep(time.Duration(m.n(1000)) * time.Millisecond)
		}
		switch k := m.n(300); {
		case k == 0:
			m.mu.Lock()
			m.restores++
			epoch := fmt.Sprintf("r%d", m.restores)
			m.mu.Unlock()
			m.log.restore(id, epoch, m.n(int(m.log.head(id))+1))
		case k < 6:
			m.bus.reconnect()
		case k < 10:
			m.log.addMany(id, m.n(100)) // the bus loses all of them
		}
		for range 1 + m.n(6) {
			m.badly(m.entry(id))
		}
	}
}

// entry appends a message or an edit of one of the latest, and returns its event.
func (m *model) entry(id string) message.Event {
	if head := m.log.head(id); head > 0 && m.chance(30) {
		return m.log.addEdit(id, max(1, head-int64(m.n(8))), strings.Repeat("y", 1+m.n(40)))
	}
	return m.log.addSized(id, 1+m.n(40))
}

// expel expels clients from channels, which they may be adding, removing, replaying or reading
// late.
func (m *model) expel(clients []*client) {
	for range 300 {
		time.Sleep(time.Duration(m.n(600)) * time.Millisecond)
		c, id := clients[m.n(len(clients))], m.channels[m.n(len(m.channels))]
		if m.chance(50) {
			m.bus.typing(id, c.name)
			continue
		}
		c.expelled.Store(id, true)
		m.hub.Expel(id, c.name, message.ModeMembersOnly)
	}
}

// badly publishes an event as a bad bus does: it may lose, repeat or delay it.
func (m *model) badly(e message.Event) {
	if m.chance(m.lossy) {
		return
	}
	times := 1
	if m.chance(10) {
		times = 2
	}
	for range times {
		if m.chance(60) {
			m.bus.publish(e)
			continue
		}
		time.AfterFunc(time.Duration(m.n(400))*time.Millisecond, func() { m.bus.publish(e) })
	}
}

// client follows channels as an SDK would, and checks everything it receives.
type client struct {
	*model
	name   string
	stream *Stream
	views  map[string]*view
	events int
	losses int
	// expelled holds the ids of channels that expel has ever removed from the client.
	expelled sync.Map
}

// view is what a client knows of one channel: pos and epoch are those of the last line received.
type view struct {
	pos     int64
	epoch   string
	waiting bool // waits for the State of the last Add
	gap     bool // a gap must follow the State
	live    bool // added without a position
	// newest holds the changed_seq of each message that the stream showed, by its seq.
	newest map[int64]int64
}

func (c *client) fatalf(format string, args ...any) {
	panic(fmt.Sprintf(c.name+": "+format, args...))
}

func (c *client) run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(c.tb.Context())
	defer cancel()
	go func() { <-stop; cancel() }()
	c.connect()
	defer func() { c.stream.Close() }()
	for {
		if !c.isCalm() {
			c.change()
		}
		f, err := c.stream.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.cut(err)
			continue
		}
		for _, l := range decode(c.tb, f) {
			c.take(l)
		}
		if !c.isCalm() && c.chance(10) {
			time.Sleep(time.Duration(c.n(6000)) * time.Millisecond) // a slow reader
		}
	}
}

// connect opens a stream and subscribes from the client's positions.
func (c *client) connect() {
	s, err := c.hub.Open(c.name, time.Time{})
	if err != nil {
		c.fatalf("open: %v", err)
	}
	c.stream = s
	var at []Position
	for id, v := range c.views {
		at = append(at, v.resume(id))
	}
	if err := s.Add(at); err != nil {
		c.fatalf("add: %v", err)
	}
}

func (v *view) resume(id string) Position {
	if v.epoch == "" && v.live {
		return Position{ChannelID: id}
	}
	v.waiting, v.gap, v.live, v.newest = true, false, false, nil
	pos := v.pos
	return Position{ChannelID: id, After: &pos, Epoch: v.epoch}
}

// cut checks the positions in the SLOW_CONSUMER error that ended the client's stream, and
// reconnects.
func (c *client) cut(err error) {
	e, ok := fault.As(err)
	if !ok || e.Reason != fault.SlowConsumer {
		c.fatalf("next: %v", err)
	}
	for id, v := range c.views {
		want := fault.Position{ChannelID: id, Seq: v.pos, Epoch: v.epoch}
		if _, ok := c.expelled.Load(id); ok {
			continue // possibly its Lost was pending
		}
		if !slices.Contains(e.Positions, want) && (!v.live || v.epoch != "") {
			c.fatalf("cut at %v, but it was at %v", e.Positions, want)
		}
	}
	c.stream.Close()
	c.connect()
}

// change occasionally adds, re-adds or removes a channel.
func (c *client) change() {
	if !c.chance(10) && len(c.views) > 0 {
		return
	}
	id := c.channels[c.n(len(c.channels))]
	v := c.views[id]
	if v != nil && c.chance(50) {
		_ = remove(c.stream, id) // Next reports a cut stream
		delete(c.views, id)
		return
	}
	v = &view{waiting: true}
	at := Position{ChannelID: id}
	if v.live = c.chance(50); !v.live {
		v.pos = int64(c.n(int(c.log.head(id)) + 1))
		at = after(id, v.pos)
	}
	err := c.stream.Add([]Position{at})
	switch {
	case err == nil:
		c.views[id] = v
	case !fault.Is(err, fault.StreamNotFound): // except for a stream that was just cut
		c.fatalf("add: %v", err)
	}
}

// take checks one received line against the client's view of its channel.
func (c *client) take(l line) {
	v := c.views[l.channel]
	if v == nil {
		c.fatalf("%v of %s, which was removed", l, l.channel)
	}
	switch l.kind {
	case "lost":
		c.losses++
		delete(c.views, l.channel)
		return
	case "typing":
		if v.waiting {
			c.fatalf("%s: %v before its state", l.channel, l)
		}
		return
	case "state":
		recovered := strings.HasSuffix(l.rest, "true")
		if !v.waiting {
			// A replay that does not catch up says so.
			if !recovered || l.seq != v.pos || l.epoch != v.epoch {
				c.fatalf("%s: a second %v after %s/%d", l.channel, l, v.epoch, v.pos)
			}
			return
		}
		v.waiting, v.gap = false, !recovered && !v.live
		if recovered && l.seq != v.pos {
			c.fatalf("%s: %v after %d", l.channel, l, v.pos)
		}
	case "gap":
		if v.waiting {
			c.fatalf("%s: %v before its state", l.channel, l)
		}
		if !v.gap && l.epoch == v.epoch {
			c.fatalf("%s: %v in the same epoch", l.channel, l)
		}
		if !v.gap && !strings.HasPrefix(l.rest, fmt.Sprintf("from=%d,", v.pos)) {
			c.fatalf("%s: %v after %d", l.channel, l, v.pos)
		}
		v.gap = false
	case "event":
		c.events++
		if v.waiting || v.gap || l.epoch != v.epoch || l.seq != v.pos+1 {
			c.fatalf("%s: %v after %s/%d (%+v)", l.channel, l, v.epoch, v.pos, v)
		}
		v.show(c, l)
	}
	if l.epoch != v.epoch {
		v.newest = nil
	}
	v.pos, v.epoch = l.seq, l.epoch
}

// show records the message of an event, which must not be older than before.
func (v *view) show(c *client, l line) {
	var seq, changed int64
	if _, err := fmt.Sscanf(l.rest, "%d@%d:", &seq, &changed); err != nil {
		c.fatalf("event %q: %v", l.rest, err)
	}
	if changed < v.newest[seq] {
		c.fatalf("%s: %v shows message %d as changed by %d, and before as changed by %d", l.channel, l, seq, changed, v.newest[seq])
	}
	if v.newest == nil {
		v.newest = make(map[int64]int64)
	}
	v.newest[seq] = changed
}

// atEnd checks that the client has received its channels up to the end of their logs.
func (c *client) atEnd(t *testing.T) {
	t.Helper()
	for id, v := range c.views {
		c.log.mu.Lock()
		ch := c.log.channel(id)
		head, epoch := int64(len(ch.events)), ch.epoch
		c.log.mu.Unlock()
		if v.pos != head || v.epoch != epoch || v.waiting {
			t.Errorf("%s: %s ends at %s/%d of %s/%d (%+v)", c.name, id, v.epoch, v.pos, epoch, head, v)
		}
	}
}
