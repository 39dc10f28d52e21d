package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// fleet is what the nodes of a test share: the messages, the mirror and the bus.
type fleet struct {
	mu        sync.Mutex
	messages  map[target]message.Message
	published []Piece
	mirror    map[target]*message.OpenText
	touched   map[target]time.Time
	away      error         // of the mirror
	silent    error         // of Peek
	refused   string        // the message that cannot be closed
	slow      time.Duration // of a close
	puts      int
	beforePut func() // called without the lock
	drafts    []message.Draft
	nodes     []*Generations
}

func newFleet() *fleet {
	return &fleet{
		messages: map[target]message.Message{}, mirror: map[target]*message.OpenText{}, touched: map[target]time.Time{},
	}
}

// node returns the generations of a new node, which run until the test ends if run is set.
func (f *fleet) node(t *testing.T, run bool) *Generations {
	t.Helper()
	g := NewGenerations(GenerationsConfig{Bus: f, Mirror: f, Log: f, MaxText: 100})
	if run {
		lifecycletest.Start(t, g)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, g)
	return g
}

// open adds an open message.
func (f *fleet) open(msgID string, at time.Time) target {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := target{"~s", msgID}
	f.messages[t] = message.Message{
		ChannelID: t.channelID, MsgID: msgID, Seq: 7, FromID: "bot", Status: message.StatusOpen, MsgTime: at, Content: "begun",
	}
	return t
}

func (f *fleet) set(t target, status message.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.messages[t]
	m.Status = status
	f.messages[t] = m
}

// mirrored returns what the mirror has of a message.
func (f *fleet) mirrored(t target) message.OpenText {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text := f.mirror[t]; text != nil {
		return *text
	}
	return message.OpenText{}
}

func (f *fleet) setAway(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = err
}

// silence sets the error of Peek.
func (f *fleet) silence(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = err
}

func (f *fleet) putCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.puts
}

func (f *fleet) PublishDelta(channelID string, d *message.Delta) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published = append(f.published, Piece{channelID, *d})
	return nil
}

func (f *fleet) Put(_ context.Context, pieces []Piece) ([]int, error) {
	if f.beforePut != nil {
		f.beforePut()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	if f.away != nil {
		return nil, f.away
	}
	lengths := make([]int, len(pieces))
	for i := range pieces {
		p := &pieces[i]
		t := target{p.ChannelID, p.MsgID}
		known := f.mirror[t]
		if known == nil || known.Attempt < p.Attempt {
			known = &message.OpenText{MsgID: p.MsgID, Seq: p.Seq, Attempt: p.Attempt}
			f.mirror[t] = known
		}
		if known.Attempt > p.Attempt {
			lengths[i] = MirrorRefused
			continue
		}
		if p.Offset <= len(known.Text) && p.Offset+len(p.Text) > len(known.Text) {
			known.Text = known.Text[:p.Offset] + p.Text
		}
		lengths[i], f.touched[t] = len(known.Text), time.Now()
	}
	return lengths, nil
}

func (f *fleet) Texts(_ context.Context, channelID string) ([]message.OpenText, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []message.OpenText
	for t, text := range f.mirror {
		if t.channelID == channelID {
			texts = append(texts, *text)
		}
	}
	return texts, f.away
}

func (f *fleet) Ages(_ context.Context, of []Piece) ([]time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ages := make([]time.Duration, len(of))
	for i := range of {
		ages[i] = -1
		if at, ok := f.touched[target{of[i].ChannelID, of[i].MsgID}]; ok {
			ages[i] = time.Since(at)
		}
	}
	return ages, f.away
}

func (f *fleet) Drop(_ context.Context, channelID string, msgIDs ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return f.away
	}
	for _, id := range msgIDs {
		delete(f.mirror, target{channelID, id})
		delete(f.touched, target{channelID, id})
	}
	return nil
}

func (f *fleet) DropAll(_ context.Context, channelID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.mirror {
		if t.channelID == channelID {
			delete(f.mirror, t)
		}
	}
	return f.away
}

func (f *fleet) Message(_ context.Context, channelID, msgID string, _ int64) (message.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.messages[target{channelID, msgID}]
	if !ok {
		return m, fault.New(fault.NotFound, fault.MessageNotFound, "none")
	}
	return m, nil
}

func (f *fleet) OpenMessages(_ context.Context, shards []int, from, before time.Time, limit int) ([]message.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []message.Entry
	for _, m := range f.messages {
		if m.Status == message.StatusOpen && !m.MsgTime.Before(from) && m.MsgTime.Before(before) && len(shards) > 0 {
			found = append(found, message.Entry{Message: m})
		}
	}
	slices.SortFunc(found, func(a, b message.Entry) int {
		return cmp.Or(a.MsgTime.Compare(b.MsgTime), cmp.Compare(a.MsgID, b.MsgID))
	})
	return found[:min(limit, len(found))], nil
}

// Append implements message.Appender: it closes messages.
func (f *fleet) Append(_ context.Context, drafts []message.Draft) []message.Outcome {
	time.Sleep(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	outs := make([]message.Outcome, len(drafts))
	for i, d := range drafts {
		t := target{d.ChannelID, d.MsgID}
		m := f.messages[t]
		if d.MsgID == f.refused {
			outs[i].Err = fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
			continue
		}
		if m.Status != message.StatusOpen {
			outs[i].Err = fault.New(fault.FailedPrecondition, fault.MessageClosed, "closed")
			continue
		}
		m.Status, m.Content = d.Kind.After(), d.Content
		f.messages[t] = m
		f.drafts = append(f.drafts, d)
	}
	return outs
}

// Freeze implements Peers.
func (f *fleet) Freeze(_ context.Context, channelID, msgID string) (text message.OpenText, ok bool) {
	f.mu.Lock()
	nodes := f.nodes
	f.mu.Unlock()
	for _, n := range nodes {
		if other, found := n.Freeze(channelID, msgID); found && (!ok || Longer(&other, &text)) {
			text, ok = other, true
		}
	}
	return text, ok
}

// Peek implements Peers.
func (f *fleet) Peek(_ context.Context, channelID, msgID string) (text message.OpenText, ok bool, err error) {
	f.mu.Lock()
	nodes, silent := f.nodes, f.silent
	f.mu.Unlock()
	for _, n := range nodes {
		if other, found := n.Peek(channelID, msgID); found && (!ok || other.Age < text.Age) {
			text, ok = other, true
		}
	}
	return text, ok, silent
}

// Ended implements Peers.
func (f *fleet) Ended(channelID, msgID string, status message.Status) {
	f.mu.Lock()
	nodes := f.nodes
	f.mu.Unlock()
	for _, n := range nodes {
		n.Ended(channelID, msgID, status)
	}
}

// Close, Cancel and CancelTarget implement Messages, with Send of fakes.
type fleetMessages struct {
	*fakes
	*fleet
}

func (f fleetMessages) Close(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error) {
	out := f.Append(ctx, []message.Draft{{Kind: r.Kind, ChannelID: r.ChannelID, MsgID: r.MsgID, Content: r.Content}})[0]
	m, _ := f.Message(ctx, r.ChannelID, r.MsgID, 0)
	return message.Receipt{MsgID: r.MsgID}, m, out.Err
}

func (f fleetMessages) Cancel(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error) {
	return f.Close(ctx, r)
}

func (f fleetMessages) CancelTarget(ctx context.Context, channelID, msgID string) (message.Message, error) {
	return f.Message(ctx, channelID, msgID, 0)
}

// newService returns a service over the fakes, on a node of its own.
func newService(f *fakes) *Service {
	fl := newFleet()
	return NewService(Config{
		Messages: fleetMessages{f, fl}, Channels: f, Peers: fl, Secret: []byte("k"),
		Generations: NewGenerations(GenerationsConfig{Bus: fl, Mirror: fl, Log: fl}),
	})
}

// serviceOn returns a service on a node of a fleet.
func serviceOn(f *fleet, g *Generations) *Service {
	return NewService(Config{Messages: fleetMessages{&fakes{}, f}, Channels: &fakes{}, Peers: f, Secret: []byte("k"), Generations: g})
}

// token returns an append token of bot for a message.
func token(s *Service, t target, attempt int64) string {
	return s.sealToken(appendToken{7, attempt}, "bot", t.channelID, t.msgID)
}

// bot is a context with the principal of an assistant.
func bot(t *testing.T) context.Context {
	t.Helper()
	return ident.NewContext(t.Context(), &ident.Principal{
		Subject: "bot", Sessions: []ident.Capability{{Pattern: "*", Actions: ident.SessionActions}},
	})
}
