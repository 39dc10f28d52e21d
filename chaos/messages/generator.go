package messages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Generation is one attempt to generate the text of an open message.
type Generation struct {
	ID      int64  `json:"id"`
	Client  string `json:"client"`
	Channel string `json:"channel"`
	MsgID   string `json:"msg_id"`
	// Begin and End are those of the call that opened the message.
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	// Text is the text that will be streamed if nothing ends the generation. It begins with a mark.
	Text string `json:"text"`
}

// Piece is a call of AppendSessionDelta and its result.
type Piece struct {
	Generation int64  `json:"generation"`
	Addr       string `json:"addr"`
	Begin      int64  `json:"begin"`
	End        int64  `json:"end"`
	// Offset and Size are the part of Generation.Text that the call appends.
	Offset  int           `json:"offset"`
	Size    int           `json:"size"`
	Outcome chaos.Outcome `json:"outcome"`
	Code    string        `json:"code,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Err     string        `json:"err,omitempty"`
	// Length is the size of the text that the node has, as the answer or the error tells it. Status is
	// the message's in the answer.
	Length int    `json:"length,omitempty"`
	Status Status `json:"status,omitempty"`
}

// generator opens messages in sessions and streams their texts, one after another. It is the only
// client with its subject.
type generator struct {
	*world

	name    string
	writers []*rawWriter // one for each node
	rng     *rand.Rand
	n       int
	began   time.Time
}

// newGenerator creates a generator that begins each message on node i.
func (r *run) newGenerator(seed uint64, name string, i int) *generator {
	g := &generator{world: r.world, name: name, rng: chaos.Source(seed, name), began: time.Now()}
	for _, addr := range r.Addrs(i) {
		g.writers = append(g.writers, r.newRawWriter(seed, name, addr, name))
	}
	return g
}

// fate is how a generation ends.
type fate int

const (
	completes fate = iota
	fails
	cancelsItself
	isCancelled // by the owner, or by the generator if the owner has not
	isRecalled  // by the owner
	dies        // without a close
)

// generation is a generator's state of one attempt.
type generation struct {
	Generation

	token string
	fate  fate
	// every is the mean pause between two pieces, and piece their mean size.
	every time.Duration
	piece int
	rng   *rand.Rand
	node  int
	// sent is how much of the text the nodes have. told is set once a node has answered that the
	// message is not open.
	sent int
	told bool
}

func (g *generator) close() {
	for _, w := range g.writers {
		w.client.Close()
	}
}

func (g *generator) run(ctx context.Context) {
	defer g.close()
	for chaos.Pause(ctx, g.rng, time.Second) {
		g.one(ctx)
	}
}

// one generates one message. If ctx ends, the message is closed as it is.
func (g *generator) one(ctx context.Context) {
	g.n++
	op := Op{
		Kind: Send, Open: true, Channel: g.sessions[g.rng.IntN(len(g.sessions))], From: g.name,
		ClientMsgID: fmt.Sprintf("%s-%d", g.name, g.n),
	}
	first := g.open(ctx, op, 0)
	if first == nil {
		return
	}
	var others sync.WaitGroup
	defer others.Wait()
	if g.rng.IntN(4) == 0 {
		rival := chaos.Source(uint64(g.n), g.name+"-rival") //nolint:gosec // a count
		others.Go(func() {
			if chaos.Sleep(ctx, time.Duration(rival.Int64N(int64(2*time.Second)))) {
				again := op
				again.Repeat = true
				if second := g.open(ctx, again, 1); second != nil {
					second.rng = rival
					g.stream(ctx, second)
				}
			}
		})
	}
	if first.fate == isCancelled || first.fate == isRecalled {
		after := time.Duration(g.rng.Int64N(int64(2 * time.Second)))
		others.Go(func() {
			if chaos.Sleep(ctx, after) {
				g.end(ctx, op, first)
			}
		})
	}
	g.stream(ctx, first)
}

// open opens the message of op, or opens it again for attempt 1. It returns nil if the message is
// not open, or no node answered.
func (g *generator) open(ctx context.Context, op Op, attempt int) *generation {
	rng := chaos.Source(uint64(g.n), fmt.Sprintf("%s-%d", g.name, attempt)) //nolint:gosec // a count
	gen := &generation{rng: rng, node: attempt * rng.IntN(2), every: 60 * time.Millisecond, piece: 1 + rng.IntN(200)}
	switch n := rng.IntN(100); {
	case n < 50:
	case n < 60:
		gen.fate = fails
	case n < 68:
		gen.fate = cancelsItself
	case n < 80:
		gen.fate = isCancelled
	case n < 88:
		gen.fate = isRecalled
	case g.load.KillFor == 0 || time.Since(g.began) < g.load.KillFor:
		gen.fate = dies
	}
	size := 200 + rng.IntN(4000)
	if rng.IntN(g.load.Long) == 0 { // longer than an abandoned message would stay open
		gen.every, gen.piece, size = 800*time.Millisecond, 100, 4000
	}
	var words strings.Builder
	words.WriteString(markOf(fmt.Sprintf("%s.%d", op.ClientMsgID, attempt)))
	for i := 0; words.Len() < size; i++ {
		_, _ = fmt.Fprintf(&words, " %d.%d ä\"\\~", attempt, i)
	}
	gen.Text = words.String()
	op, gen.token = g.repeat(ctx, op, &gen.node)
	if op.Outcome != chaos.OK || gen.token == "" {
		return nil
	}
	gen.Generation = Generation{
		ID: g.rec.ID(), Client: g.name, Channel: op.Channel, MsgID: op.MsgID, Begin: op.Begin, End: op.End, Text: gen.Text,
	}
	g.rec.Write(line{Generation: &gen.Generation})
	return gen
}

// repeat makes a call, on one node after another from node on, until its outcome is known, for up
// to half a minute. It returns the last call, and the append token of a message that it opened.
func (g *generator) repeat(ctx context.Context, op Op, node *int) (last Op, token string) {
	ctx = context.WithoutCancel(ctx)
	repeated := op.Repeat
	for began := time.Now(); ; *node++ {
		w := g.writers[*node%len(g.writers)]
		call := op
		call.Client, call.Addr, call.Limit, call.After, call.Before = g.name, w.addr, int64(rawLimit), unset, unset
		call.Repeat = repeated
		g.rec.Start(&call)
		token := w.call(ctx, &call)
		if call.Outcome != chaos.Unknown && !again(call.Code) || time.Since(began) > 30*time.Second {
			return call, token
		}
		repeated = true
		chaos.Sleep(ctx, chaos.AfterFailure)
	}
}

// again reports whether a call that failed without an effect may succeed later.
func again(code string) bool { return code == "unavailable" || code == "resource_exhausted" }

// stream streams the text and ends the message, as its fate is. A generator that is told that the
// message is not open closes it all the same, which must be refused.
func (g *generator) stream(ctx context.Context, gen *generation) {
	until := len(gen.Text)
	if gen.fate != completes && gen.fate != isRecalled {
		until = gen.rng.IntN(until)
	}
	for stuck := time.Now(); gen.sent < until && chaos.Pause(ctx, gen.rng, gen.every); {
		if gen.rng.IntN(15) == 0 {
			gen.node++
		}
		before := gen.sent
		if !g.append(ctx, gen) {
			if !gen.told {
				return
			}
			break
		}
		if gen.sent > before {
			stuck = time.Now()
		} else if time.Since(stuck) > 30*time.Second {
			break // the close has the whole text
		}
	}
	if gen.fate == dies && !gen.told && ctx.Err() == nil {
		g.world.open.died()
		return
	}
	op := Op{
		Kind: CloseMessage, Channel: gen.Channel, MsgID: gen.MsgID, From: g.name, Status: StatusComplete, Content: gen.Text,
		ClientMsgID: fmt.Sprintf("%s-close-%d", gen.MsgID, gen.ID),
	}
	switch gen.fate {
	case fails:
		op.Status, op.Content = StatusFailed, gen.Text[:gen.sent]
	case cancelsItself, isCancelled:
		op.Status, op.Content = StatusCancelled, gen.Text[:gen.sent]
	case completes, isRecalled, dies:
	}
	if last, _ := g.repeat(ctx, op, &gen.node); last.Outcome == chaos.Unknown {
		g.world.open.died()
	}
}

// append appends the next piece of the text. It returns false if the generation has ended.
func (g *generator) append(ctx context.Context, gen *generation) bool {
	w := g.writers[gen.node%len(g.writers)]
	id, _ := sessionOf(gen.Channel)
	p := Piece{Generation: gen.ID, Addr: w.addr, Offset: gen.sent, Begin: g.rec.Now()}
	p.Size = min(1+gen.rng.IntN(2*gen.piece), len(gen.Text)-gen.sent)
	for !utf8.RuneStart(append([]byte(gen.Text), 0)[p.Offset+p.Size]) {
		p.Size++
	}
	call, cancel := w.client.Call(context.WithoutCancel(ctx), rawLimit)
	res, err := w.client.AppendSessionDelta(call, &parleyv1.AppendSessionDeltaRequest{
		SessionId: id, MsgId: gen.MsgID, AppendToken: gen.token, Offset: int64(p.Offset), Text: gen.Text[p.Offset : p.Offset+p.Size],
	})
	cancel()
	p.End = g.rec.Now()
	e := chaos.EndingOf(err)
	p.Outcome, p.Code, p.Err, p.Length = e.Outcome, e.Code, e.Err, int(res.GetLength())
	if e.Reason != 0 {
		p.Reason = e.Reason.String()
	}
	if err == nil {
		p.Status = copyOf(&parleyv1.ChannelMessage{Status: res.GetStatus()}).Status
	} else {
		p.Length = int(limitOf(err))
	}
	g.rec.Write(line{Piece: &p})
	switch {
	case err == nil && p.Status == StatusOpen:
		gen.sent = p.Offset + p.Size
	case err == nil:
		gen.told = true
		return false
	case p.Code == connect.CodeOutOfRange.String():
		gen.sent = min(p.Length, gen.sent)
	case p.Outcome == chaos.Unknown || again(p.Code):
		gen.node++
		chaos.Sleep(ctx, chaos.AfterFailure)
	default:
		return false
	}
	return true
}

// limitOf returns the limit in the detail of an error.
func limitOf(err error) int64 {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*parleyv1.ErrorDetail); ok {
				return detail.GetLimit()
			}
		}
	}
	return 0
}

// end cancels or recalls the message of op as its session's owner, on some node.
func (g *generator) end(ctx context.Context, op Op, gen *generation) {
	rng := chaos.Source(uint64(g.n), g.name+"-end") //nolint:gosec // a count
	by := &generator{world: g.world, name: owner}
	for _, w := range g.writers {
		by.writers = append(by.writers, g.newRawWriter(0, owner, w.addr, owner))
	}
	defer by.close()
	node := rng.IntN(len(by.writers))
	end := Op{
		Kind: CancelMessage, Channel: op.Channel, MsgID: gen.MsgID, From: owner, Status: StatusCancelled, ClientMsgID: op.ClientMsgID + "-end",
	}
	if gen.fate == isRecalled {
		end.Kind, end.Status = Recall, 0
	}
	by.repeat(ctx, end, &node)
}
