package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// comebackPerChannel is the number of reconnecting streams of one channel.
	comebackPerChannel = 100
	// comebackEvery is the interval at which every channel gets a message, before, during and after
	// the server's absence.
	comebackEvery = time.Second
	// comebackPatience bounds the time until all streams are back.
	comebackPatience = 2 * time.Minute
	// The waits between a stream's attempts according to sdk/SPEC.md: a random time up to a bound
	// that doubles.
	backoffBase, backoffMax, attemptTimeout = 200 * time.Millisecond, 10 * time.Second, 5 * time.Second
)

// measureReconnect measures the time until all streams are back after their server was killed and
// restarted.
func measureReconnect(ctx context.Context, env *Env) ([]Figure, error) {
	var values, floors, away, replayed []float64
	var reads storeReads
	err := env.Each(ctx, func(ctx context.Context) error {
		run, err := comeback(ctx, env)
		values, away, replayed = append(values, run.took.Seconds()), append(away, run.away.Seconds()), append(replayed, run.missed)
		reads.add(run.reads)
		return err
	}, func(ctx context.Context) error {
		took, err := openAll(ctx, env)
		floors = append(floors, took.Seconds())
		return err
	})
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "reconnect/time", Name: "kill -9, start again: until all streams are live and level", Unit: "s",
		Setup: env.Setup(map[string]string{
			"connections": strconv.Itoa(env.Streams), "channels": strconv.Itoa(comebackChannels(env)),
			"rate":    "a message per channel and " + comebackEvery.String() + ", before, meanwhile and after",
			"backoff": fmt.Sprintf("a random time up to %s, doubled up to %s", backoffBase, backoffMax),
		}),
		Notes: []string{
			fmt.Sprintf("of this the server was away for %s", text(away, "s")),
			fmt.Sprintf("streams that had missed something and got it: %s of %d; every entry arrived once and in order on every stream",
				text(replayed, ""), env.Streams),
			reads.String(),
		},
	}.WithFloor("opening as many streams at a bare connect-go server that runs", values, floors)
	met := f.Value.Median <= 15 && reads.entries+reads.heads == 0
	return []Figure{f.WithBar("15 s at most, no hole, no read of the store", met)}, nil
}

func text(values []float64, unit string) string {
	s := Summarize(values)
	return s.text(unit)
}

func comebackChannels(env *Env) int {
	return (env.Streams + comebackPerChannel - 1) / comebackPerChannel
}

// storeReads are the reads of the message store that a server counts: heads are reads of the end of
// a log, entries those of its entries.
type storeReads struct{ heads, entries float64 }

func (r *storeReads) add(o storeReads) { r.heads, r.entries = r.heads+o.heads, r.entries+o.entries }

// String formats the counts for people.
func (r *storeReads) String() string {
	return fmt.Sprintf("reads of the store by the servers that were started again, over all rounds: %.0f of entries, %.0f of where a log ends; "+
		"not counted: those of the channels' rows, and of members, whom nobody looks up here, as the streams' user may manage",
		r.entries, r.heads)
}

// readsOf returns the reads of its store that a server has made since it started.
func readsOf(ctx context.Context, t *Target) (storeReads, error) {
	m, err := t.Metrics(ctx)
	if err != nil {
		return storeReads{}, err
	}
	const name = "parley_store_reads_total"
	if !m.Has(name) { // a server that counts reports 0 from the start
		return storeReads{}, errors.New("the server does not count its reads of the store")
	}
	heads := m.Sum(name, `operation="head"`)
	return storeReads{heads: heads, entries: m.Sum(name, "") - heads}, nil
}

// comebackRun is the result of one round.
type comebackRun struct {
	// took is the time from the kill until the last stream was live and had caught up, away the
	// time until the server was ready again.
	took, away time.Duration
	// missed is the number of streams whose channels got entries while they were disconnected.
	missed float64
	reads  storeReads
}

// comeback kills a server with streams, restarts it, and waits until the streams are back.
func comeback(ctx context.Context, env *Env) (run comebackRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	s, err := env.StartServer(ctx)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := newHerd(env.Streams, comebackChannels(env), &s.Target)
	defer h.close()
	if err := h.open(ctx); err != nil {
		return run, err
	}
	p, err := startTrickle(ctx, &s.Target, h.channels, env.Payload)
	if err != nil {
		return run, err
	}
	defer p.stop()
	pause(ctx, max(env.Duration/2, 200*time.Millisecond))
	if err := p.wait(ctx, 1); err != nil {
		return run, err
	}

	began := time.Now()
	s.Kill()
	if err := s.Restart(ctx); err != nil {
		return run, err
	}
	run.away = time.Since(began)
	last, missed, err := h.back(ctx, began)
	if err != nil {
		return run, err
	}
	run.took, run.missed = last.Sub(began), float64(missed)
	if run.reads, err = readsOf(ctx, &s.Target); err != nil {
		return run, err
	}
	// Messages sent from here on reach all streams, which must then be at the sender's positions.
	heads, err := p.finish(ctx)
	if err != nil {
		return run, err
	}
	return run, h.level(ctx, heads)
}

// openAll opens env.Streams streams at the floor, closes them, and returns how long opening took.
func openAll(ctx context.Context, env *Env) (took time.Duration, err error) {
	floor, process, err := env.StartFloorServer(ctx, "fanout")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, process.Close()) }()
	channels := comebackChannels(env)
	began := time.Now()
	crowd, err := openCrowd(ctx, floor, env.Streams, idleBuffer, func(i int) string { return fmt.Sprintf("floor-%d", i%channels) }, nil)
	if err != nil {
		return 0, err
	}
	took = time.Since(began)
	crowd.close()
	return took, nil
}

// trickle sends to all channels in turn, during the whole round, and tracks the end of each log.
type trickle struct {
	client *parley.Client
	cancel context.CancelFunc
	done   chan struct{}
	err    error // may be read after done is closed
	ending atomic.Bool
	// rounds counts how often every channel got its message. heads are the seqs at the ends of the
	// logs, by channel. They may be read after done is closed.
	rounds atomic.Int64
	heads  map[string]int64
}

func startTrickle(ctx context.Context, t *Target, channels []string, payload int) (*trickle, error) {
	// The short backoff lets the client send again before most of the streams have reconnected, so
	// that these miss entries.
	client, err := parley.New(t.Addrs[0], parley.WithToken(t.Token),
		parley.WithBackoff(parley.Backoff{Base: 20 * time.Millisecond, Max: 50 * time.Millisecond}))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &trickle{client: client, cancel: cancel, done: make(chan struct{}), heads: make(map[string]int64)}
	go func() {
		defer close(p.done)
		for !p.ending.Load() && p.err == nil {
			p.err = p.once(ctx, channels, payload)
		}
	}()
	return p, nil
}

// once sends one message to each channel, and waits until comebackEvery has passed since it began.
func (p *trickle) once(ctx context.Context, channels []string, payload int) error {
	next := time.Now().Add(comebackEvery)
	messages := make([]parley.Outgoing, len(channels))
	for i, channel := range channels {
		messages[i] = parley.Outgoing{ChannelID: channel, Content: content(time.Now(), payload)}
	}
	results, err := p.client.SendBatch(ctx, messages) // retried until the server is back
	for i, result := range results {
		channel := channels[i]
		if err = errors.Join(err, result.Err); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if want := p.heads[channel] + 1; result.Receipt.Seq != want {
			return fmt.Errorf("send: got seq %d, want %d", result.Receipt.Seq, want)
		}
		p.heads[channel] = result.Receipt.Seq
	}
	p.rounds.Add(1)
	for !p.ending.Load() && ctx.Err() == nil && time.Now().Before(next) {
		pause(ctx, 10*time.Millisecond)
	}
	return err
}

// wait waits until every channel has received at least rounds messages, or the trickle has failed.
func (p *trickle) wait(ctx context.Context, rounds int64) error {
	for p.rounds.Load() < rounds {
		select {
		case <-p.done:
			return p.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// finish waits until every channel has got at least one more message, stops, and returns the ends
// of the logs.
func (p *trickle) finish(ctx context.Context) (map[string]int64, error) {
	if err := p.wait(ctx, p.rounds.Load()+2); err != nil {
		return nil, err
	}
	p.ending.Store(true)
	<-p.done
	return p.heads, p.err
}

func (p *trickle) stop() {
	p.cancel()
	<-p.done
	p.client.Close()
}

// herd is a set of streams that reconnect when they end, until it is closed.
type herd struct {
	target   Target // a copy, because a restart changes the server's fields
	channels []string
	members  []*member
	ctx      context.Context //nolint:containedctx // the streams' own life
	cancel   context.CancelFunc
	running  sync.WaitGroup
	failed   chan error
}

// member is one stream of a herd.
type member struct {
	herd    *herd
	channel string

	mu sync.Mutex // guards the fields below
	// live is set while the stream is connected and has caught up with head. since is when live was
	// last set.
	live  bool
	since time.Time
	// head is the end of the log according to the stream's state. last is the last entry received,
	// and epoch the log's epoch.
	head, last int64
	epoch      string
	// missed is set if the log had grown when the stream reconnected.
	missed bool
	stream *rawStream
}

func newHerd(n, channels int, t *Target) *herd {
	h := &herd{target: *t, members: make([]*member, n), failed: make(chan error, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // the streams' own life, which close ends
	name := "bench-" + rand.Text()[:8] + "-"
	for i := range channels {
		h.channels = append(h.channels, name+strconv.Itoa(i))
	}
	for i := range h.members {
		h.members[i] = &member{herd: h, channel: h.channels[i%channels]}
	}
	return h
}

// open starts the streams, a few at a time, and waits until all are live.
func (h *herd) open(ctx context.Context) error {
	slots := make(chan struct{}, dialers)
	for _, m := range h.members {
		h.running.Go(func() {
			slots <- struct{}{}
			m.run(func() { <-slots })
		})
	}
	_, _, err := h.back(ctx, time.Time{})
	return err
}

// back waits until all streams are live, each since a time later than after. It returns when the
// last one became live, and the number of streams that had entries to catch up on.
func (h *herd) back(ctx context.Context, after time.Time) (last time.Time, missed int, err error) {
	err = h.until(ctx, func(m *member) bool { return m.live && m.since.After(after) })
	for _, m := range h.members {
		m.mu.Lock()
		if m.since.After(last) {
			last = m.since
		}
		if m.missed {
			missed++
		}
		m.mu.Unlock()
	}
	return last, missed, err
}

// level waits until the last entry of every stream is the end of its channel's log in heads.
func (h *herd) level(ctx context.Context, heads map[string]int64) error {
	return h.until(ctx, func(m *member) bool { return m.last == heads[m.channel] })
}

// until waits until holds is true for all members, for up to comebackPatience. It calls holds with
// the member's lock held.
func (h *herd) until(ctx context.Context, holds func(m *member) bool) error {
	deadline := time.After(comebackPatience)
	for {
		n := 0
		for _, m := range h.members {
			m.mu.Lock()
			if holds(m) {
				n++
			}
			m.mu.Unlock()
		}
		if n == len(h.members) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case err := <-h.failed:
			return err
		case <-deadline:
			return fmt.Errorf("%d of %d streams are live after %s", n, len(h.members), comebackPatience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *herd) close() {
	h.cancel()
	for _, m := range h.members {
		m.mu.Lock()
		if m.stream != nil {
			m.stream.close()
		}
		m.mu.Unlock()
	}
	h.running.Wait()
}

// run keeps the stream connected until the herd is closed. It calls first after the first attempt.
func (m *member) run(first func()) {
	failures := 0
	for m.herd.ctx.Err() == nil {
		stream, err := m.connect()
		if first != nil {
			first()
			first = nil
		}
		if err == nil {
			for err == nil {
				var frame []byte
				if frame, err = stream.next(); err == nil {
					failures = 0
					err = eachEvent(frame, m.take)
				}
			}
			m.ended(stream)
		}
		if fatal := (*holeError)(nil); errors.As(err, &fatal) {
			select {
			case m.herd.failed <- err:
			default:
			}
			return
		}
		bound := min(backoffBase<<min(failures, 20), backoffMax)
		failures++
		pause(m.herd.ctx, randv2.N(bound))
	}
}

// connect opens a stream that continues after the last entry that the member received.
func (m *member) connect() (*rawStream, error) {
	ctx, cancel := context.WithTimeout(m.herd.ctx, attemptTimeout)
	defer cancel()
	m.mu.Lock()
	at := &parleyv1.ChannelPosition{ChannelId: m.channel, AfterSeq: proto.Int64(m.last), Epoch: m.epoch}
	m.mu.Unlock()
	request, err := proto.Marshal(&parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{at}})
	if err != nil {
		return nil, err
	}
	stream, err := openStream(ctx, m.herd.target.Addrs[0], parleyv1connect.MessageServiceSubscribeProcedure,
		m.herd.target.Token, request, idleBuffer)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.herd.ctx.Err() != nil {
		stream.close()
		return nil, m.herd.ctx.Err()
	}
	m.stream = stream
	return stream, nil
}

// ended records the end of the stream.
func (m *member) ended(stream *rawStream) {
	stream.close()
	m.mu.Lock()
	m.live = false
	m.mu.Unlock()
}

// holeError is a violation of ordering or completeness. It ends the measurement.
type holeError struct{ what string }

// Error implements error.
func (e *holeError) Error() string { return e.what }

// take processes one event. It returns a *holeError for a gap and for a missing or repeated entry.
func (m *member) take(e *event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.kind {
	case fieldState:
		var state parleyv1.ChannelState
		if err := proto.Unmarshal(e.body, &state); err != nil {
			return err
		}
		if !state.GetRecovered() {
			return &holeError{fmt.Sprintf("channel %s after %d: not recovered", m.channel, m.last)}
		}
		m.epoch, m.head = state.GetEpoch(), state.GetHeadSeq()
		m.missed = m.head > m.last
	case fieldSent:
		if !e.follows(m.last) {
			return &holeError{fmt.Sprintf("channel %s: entry %d came after %d", m.channel, e.seq, m.last)}
		}
		m.last = e.seq
	case fieldGap:
		return &holeError{fmt.Sprintf("channel %s after %d: a gap", m.channel, m.last)}
	default:
	}
	if !m.live && m.last >= m.head {
		m.live, m.since = true, time.Now()
	}
	return nil
}
