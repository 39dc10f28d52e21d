package fanout

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEncoder writes one line per piece, so that pieces can be joined and read back.
type fakeEncoder struct {
	// copies makes an event's content begin with the seq of its message and the message's changed_seq,
	// as in "3@7:".
	copies bool

	mu     sync.Mutex
	events int
}

func (f *fakeEncoder) Event(e *message.Event) []byte {
	f.mu.Lock()
	f.events++
	f.mu.Unlock()
	if f.copies {
		return fmt.Appendf(nil, "event %s %s %d %d@%d:%s\n",
			e.Message.ChannelID, e.Epoch, e.Seq, e.Message.Seq, e.Message.ChangedSeq, e.Message.Content)
	}
	return fmt.Appendf(nil, "event %s %s %d %s\n", e.Message.ChannelID, e.Epoch, e.Seq, e.Message.Content)
}

func (f *fakeEncoder) State(channelID string, seq int64, s message.State, recovered bool) []byte {
	return fmt.Appendf(nil, "state %s %s %d head=%d,recovered=%t\n", channelID, s.Epoch, seq, s.Head, recovered)
}

func (f *fakeEncoder) Gap(channelID string, from, to int64, epoch string, reason GapReason) []byte {
	return fmt.Appendf(nil, "gap %s %s %d from=%d,reason=%d\n", channelID, epoch, to, from, reason)
}

func (f *fakeEncoder) Lost(channelID string, reason LostReason) []byte {
	return fmt.Appendf(nil, "lost %s - 0 reason=%d\n", channelID, reason)
}

func (f *fakeEncoder) Delta(channelID, msgID string, offset int, text string) []byte {
	return fmt.Appendf(nil, "delta %s - 0 %s@%d:%s\n", channelID, msgID, offset, text)
}

func (f *fakeEncoder) Typing(channelID, userID string) []byte {
	return fmt.Appendf(nil, "typing %s - 0 %s\n", channelID, userID)
}

// line is a decoded line of fakeEncoder's output.
type line struct {
	kind, channel, epoch string
	seq                  int64
	rest                 string
}

func decode(tb testing.TB, f Frame) []line {
	tb.Helper()
	var lines []line
	for _, p := range f.Pieces {
		for text := range strings.Lines(string(p)) {
			w := strings.Fields(text)
			if len(w) != 5 {
				tb.Fatalf("piece %q", text)
			}
			seq, err := strconv.ParseInt(w[3], 10, 64)
			if err != nil {
				tb.Fatalf("piece %q: %v", text, err)
			}
			lines = append(lines, line{kind: w[0], channel: w[1], epoch: w[2], seq: seq, rest: w[4]})
		}
	}
	return lines
}

func (l line) String() string {
	switch l.kind {
	case "event":
		return fmt.Sprintf("%s/%d", l.epoch, l.seq)
	case "lost", "typing":
		return fmt.Sprintf("%s(%s)", l.kind, l.rest)
	default:
		return fmt.Sprintf("%s(%s/%d,%s)", l.kind, l.epoch, l.seq, l.rest)
	}
}

// hook is called by a fakeLog at one of the points below.
type hook func(ctx context.Context, channelID string) error

const (
	beforeState = iota
	afterState
	beforeReplay
	afterReplay
)

// fakeLog is an in-memory log. Its hooks run without its lock.
type fakeLog struct {
	mu sync.Mutex
	// hooks run before and after State and Replay read the log, with the channel's id. An error ends
	// the call.
	hooks    [4]hook
	channels map[string]*fakeChannel
	// stingy makes Replay return as few events as its contract allows.
	stingy bool
	states int
	// statesCalls counts the calls of States, states the channels in them.
	statesCalls int
	replays     int
	// patient records the patient argument of each replay.
	patient []bool
}

type fakeChannel struct {
	epoch  string
	oldest int64
	rev    int64           // of the next entries
	events []message.Event // from seq 1, regardless of oldest
}

func newLog() *fakeLog { return &fakeLog{channels: map[string]*fakeChannel{}} }

func (f *fakeLog) channel(id string) *fakeChannel {
	c := f.channels[id]
	if c == nil {
		c = &fakeChannel{epoch: "e1"}
		f.channels[id] = c
	}
	return c
}

// add appends an entry to a channel's log and returns its event, without publishing it.
func (f *fakeLog) add(id string) message.Event { return f.addSized(id, 1) }

func (f *fakeLog) addSized(id string, size int) message.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.channel(id)
	seq := int64(len(c.events)) + 1
	e := message.Event{Epoch: c.epoch, Seq: seq, Count: seq, Rev: c.rev, Time: time.Now(), Message: message.Message{
		ChannelID: id, Seq: seq, Count: seq, ChangedSeq: seq, Content: strings.Repeat("x", size),
	}}
	c.events = append(c.events, e)
	return e
}

// addEdit appends an edit of the message of the entry at seq, and returns its event. Replays show
// the message with this edit from now on.
func (f *fakeLog) addEdit(id string, seq int64, content string) message.Event {
	e := f.add(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.channel(id).events
	e.Kind, e.Message.Seq, e.Message.Content = message.KindEdit, events[seq-1].Message.Seq, content
	events[e.Seq-1] = e
	for i := range events {
		if events[i].Message.Seq == e.Message.Seq {
			events[i].Message = e.Message
		}
	}
	return e
}

// setRev sets the access revision of the next entries.
func (f *fakeLog) setRev(id string, rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.channel(id).rev = rev
}

// edit changes how replays show an entry from now on.
func (f *fakeLog) edit(id string, seq int64, change func(e *message.Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.channel(id).events[seq-1])
}

func (f *fakeLog) addMany(id string, n int) {
	for range n {
		f.add(id)
	}
}

// restore replaces the epoch and keeps only the first keep entries, as a restore from a backup
// does. The edits that are cut are no longer shown.
func (f *fakeLog) restore(id, epoch string, keep int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.channel(id)
	c.epoch = epoch
	c.events = c.events[:keep:keep]
	for i := range c.events {
		c.events[i].Epoch = epoch
		if m := &c.events[i].Message; m.ChangedSeq > int64(keep) {
			m.ChangedSeq = c.events[i].Seq
		}
	}
}

func (f *fakeLog) head(id string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.channel(id).events))
}

func (f *fakeLog) on(point int, h hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[point] = h
}

func (f *fakeLog) call(ctx context.Context, point int, id string) error {
	f.mu.Lock()
	h := f.hooks[point]
	f.mu.Unlock()
	if h == nil {
		return ctx.Err()
	}
	return h(ctx, id)
}

func (f *fakeLog) States(ctx context.Context, ids []string) (map[string]message.State, error) {
	f.mu.Lock()
	f.statesCalls++
	f.mu.Unlock()
	states := make(map[string]message.State)
	for _, id := range ids {
		st, err := f.state(ctx, id)
		if err != nil {
			return nil, err
		}
		states[id] = st
	}
	return states, nil
}

func (f *fakeLog) state(ctx context.Context, id string) (message.State, error) {
	if err := f.call(ctx, beforeState, id); err != nil {
		return message.State{}, err
	}
	f.mu.Lock()
	f.states++
	c := f.channel(id)
	st := message.State{Epoch: c.epoch, Oldest: c.oldest, Head: int64(len(c.events)), Count: int64(len(c.events))}
	if st.Oldest == 0 {
		st.Oldest = 1
	}
	if st.Head > 0 {
		st.Rev = c.events[st.Head-1].Rev
	}
	f.mu.Unlock()
	return st, f.call(ctx, afterState, id)
}

func (f *fakeLog) Replay(
	ctx context.Context, id string, after, atLeast int64, limit, maxBytes int, patient bool,
) ([]message.Event, error) {
	if err := f.call(ctx, beforeReplay, id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.replays++
	f.patient = append(f.patient, patient)
	c := f.channel(id)
	var events []message.Event
	end := int64(len(c.events))
	if f.stingy {
		end = min(end, atLeast)
	}
	for bytes := 0; after < end && after >= c.oldest-1 && len(events) < limit && bytes < maxBytes; after++ {
		events = append(events, c.events[after])
		bytes += len(c.events[after].Message.Content)
	}
	f.mu.Unlock()
	return events, f.call(ctx, afterReplay, id)
}

// fakeBus passes events to subscribers before publish returns. Tests lose, repeat, delay or reorder
// them.
type fakeBus struct {
	// fail returns the error of Subscribe for a channel; nil means that Subscribe succeeds.
	fail func(channelID string) error

	mu          sync.Mutex
	subs        map[string][]*fakeSub
	deltas      map[string]func(message.Delta)
	subscribed  int
	reconnected []func()
}

type fakeSub struct {
	mu     sync.Mutex // one event at a time
	fn     func(message.Event)
	typing func(userID string)
}

func newBus() *fakeBus { return &fakeBus{subs: map[string][]*fakeSub{}} }

func (f *fakeBus) Subscribe(id string, fn func(message.Event), typing func(string)) (func(), error) {
	if f.fail != nil {
		if err := f.fail(id); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &fakeSub{fn: fn, typing: typing}
	f.subs[id] = append(f.subs[id], s)
	f.subscribed++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		var rest []*fakeSub
		for _, other := range f.subs[id] {
			if other != s {
				rest = append(rest, other)
			}
		}
		f.subs[id] = rest
	}, nil
}

func (f *fakeBus) SubscribeDeltas(id string, fn func(message.Delta)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deltas == nil {
		f.deltas = map[string]func(message.Delta){}
	}
	f.deltas[id] = fn
	return func() {}, nil
}

// delta publishes a piece of the text of an open message.
func (f *fakeBus) delta(id string, d message.Delta) {
	f.mu.Lock()
	fn := f.deltas[id]
	f.mu.Unlock()
	if fn != nil {
		fn(d)
	}
}

func (f *fakeBus) OnReconnect(fn func()) { f.reconnected = append(f.reconnected, fn) }

func (f *fakeBus) reconnect() {
	for _, fn := range f.reconnected {
		fn()
	}
}

func (f *fakeBus) publish(e message.Event) {
	f.mu.Lock()
	subs := f.subs[e.Message.ChannelID]
	f.mu.Unlock()
	for _, s := range subs {
		s.mu.Lock()
		s.fn(e)
		s.mu.Unlock()
	}
}

func (f *fakeBus) typing(id, userID string) {
	f.mu.Lock()
	subs := f.subs[id]
	f.mu.Unlock()
	for _, s := range subs {
		s.typing(userID)
	}
}

func (f *fakeBus) listeners(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs[id])
}

// rig is a started hub with fakes for all its dependencies.
type rig struct {
	tb  testing.TB
	hub *Hub
	bus *fakeBus
	log *fakeLog
	enc *fakeEncoder
}

// setup returns a rig with a hub that runs until the test ends.
func setup(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	r := &rig{tb: tb, bus: newBus(), log: newLog(), enc: &fakeEncoder{}}
	r.hub = New(cfg, r.bus, r.log, r.enc)
	lifecycletest.Start(tb, r.hub)
	return r
}

// noChecks returns a Config without the checks that compare topics with the log, for tests of what
// works without them.
func noChecks() Config {
	return Config{CheckAfter: []time.Duration{1000 * time.Hour}, CheckEvery: 1000 * time.Hour}
}

// send appends an entry to a channel's log and publishes its event.
func (r *rig) send(id string) { r.bus.publish(r.log.add(id)) }

func (r *rig) open(positions ...Position) *Stream {
	r.tb.Helper()
	return r.openAs("ann", positions...)
}

func (r *rig) openAs(subject string, positions ...Position) *Stream {
	r.tb.Helper()
	s, err := r.hub.Open(subject, time.Time{})
	if err != nil {
		r.tb.Fatalf("open: %v", err)
	}
	r.tb.Cleanup(s.Close)
	if err := s.Add(positions); err != nil {
		r.tb.Fatalf("add: %v", err)
	}
	return s
}

func after(id string, seq int64) Position { return Position{ChannelID: id, After: &seq} }

func live(id string) Position { return Position{ChannelID: id} }

// read calls Next until it returns nothing for 10 ms. It returns the received lines of each
// channel, joined by spaces.
func (r *rig) read(s *Stream) map[string]string {
	r.tb.Helper()
	got, err := r.drainFrames(s)
	if err != nil {
		r.tb.Fatalf("next: %v", err)
	}
	return got
}

// drainFrames is like read, but returns the error of a stream that has ended instead of failing the
// test.
func (r *rig) drainFrames(s *Stream) (map[string]string, error) {
	r.tb.Helper()
	got := map[string]string{}
	for {
		ctx, cancel := context.WithTimeout(r.tb.Context(), 10*time.Millisecond)
		f, err := s.Next(ctx)
		cancel()
		if err != nil {
			if ctx.Err() != nil && r.tb.Context().Err() == nil && err == ctx.Err() {
				return got, nil
			}
			return got, err
		}
		for _, l := range decode(r.tb, f) {
			if got[l.channel] != "" {
				got[l.channel] += " "
			}
			got[l.channel] += l.String()
		}
	}
}

// remove removes channels from a stream. It returns an error if the stream has ended.
func remove(s *Stream, channelIDs ...string) error { return s.Update(Change{Remove: channelIDs}) }
