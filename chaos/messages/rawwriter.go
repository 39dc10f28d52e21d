package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// rawLimit bounds one call of the generated client.
const rawLimit = 5 * time.Second

// raw is the generated client with a token and nothing else: its answer is the server's own.
type raw struct {
	*chaos.Conn
	parleyv1connect.MessageServiceClient
}

func newRaw(addr, token string) *raw { return newRawOn(chaos.NewConn(addr, token)) }

func newRawOn(c *chaos.Conn) *raw {
	return &raw{Conn: c, MessageServiceClient: parleyv1connect.NewMessageServiceClient(c.HTTP, c.URL(), connect.WithGRPC())}
}

// rawWriter writes without retries. It repeats some writes of unknown outcome later, as calls of
// their own.
type rawWriter struct {
	*world

	name, addr, subject string
	client              *raw
	rng                 *rand.Rand
	n                   int
	// open are writes of unknown outcome, to be repeated later.
	open []Op
}

func (w *world) newRawWriter(seed uint64, name, addr, subject string) *rawWriter {
	return &rawWriter{
		world: w, name: name, addr: addr, subject: subject, client: newRaw(addr, w.token(subject)), rng: chaos.Source(seed, name),
	}
}

func (w *rawWriter) run(ctx context.Context) {
	defer w.client.Close()
	for every := w.load.WriteEvery; chaos.Pause(ctx, w.rng, every); {
		every = w.load.WriteEvery
		if w.one(context.WithoutCancel(ctx)) == chaos.Unknown {
			every = chaos.AfterFailure
		}
	}
}

// one makes one random write and returns its outcome.
func (w *rawWriter) one(ctx context.Context) chaos.Outcome {
	w.n++
	op := Op{
		Client: w.name, Addr: w.addr, Kind: Send, Limit: int64(rawLimit), Channel: w.pick(w.rng), From: w.subject,
		ClientMsgID: fmt.Sprintf("%s-%d", w.name, w.n), After: unset, Before: unset,
	}
	target, ok := w.world.pool.pick(w.rng, w.subject)
	switch n := w.rng.IntN(100); {
	case n < 50 || !ok:
		op.Content = text(w.rng, op.ClientMsgID)
	case n < 65:
		op.Channel = w.pickPlain(w.rng)
		return w.batch(ctx, op)
	case n < 78:
		op.Kind, op.Channel, op.MsgID, op.Content = Edit, target.channel, target.msgID, text(w.rng, op.ClientMsgID)
	case n < 90:
		op.Kind, op.Channel, op.MsgID = Recall, target.channel, target.msgID
	case len(w.open) > 0:
		was := w.open[0]
		w.open = w.open[1:]
		op.Kind, op.Channel, op.ClientMsgID, op.Content, op.Repeat = was.Kind, was.Channel, was.ClientMsgID, was.Content, true
		if was.Kind != Send {
			op.MsgID = was.MsgID
		}
	default:
		op.Content = text(w.rng, op.ClientMsgID)
	}
	w.rec.Start(&op)
	w.call(ctx, &op)
	// Half of the writes of unknown outcome are never repeated. Each of those must be stored once
	// or not at all.
	if op.Outcome == chaos.Unknown && w.rng.IntN(2) == 0 && len(w.open) < 100 {
		w.open = append(w.open, op)
	}
	return op.Outcome
}

// call makes the call of an op and records it. token is the append token of a message that it
// opened.
func (w *rawWriter) call(ctx context.Context, op *Op) (token string) {
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	var err error
	switch _, session := sessionOf(op.Channel); {
	case session:
		token, err = w.callSession(ctx, op)
	case op.Kind == Edit:
		var res *parleyv1.EditMessageResponse
		res, err = w.client.EditMessage(ctx, &parleyv1.EditMessageRequest{
			ChannelId: op.Channel, MsgId: op.MsgID, Content: op.Content, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
	case op.Kind == Recall:
		var res *parleyv1.RecallMessageResponse
		res, err = w.client.RecallMessage(ctx, &parleyv1.RecallMessageRequest{
			ChannelId: op.Channel, MsgId: op.MsgID, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
	default:
		var res *parleyv1.SendMessageResponse
		if res, err = w.client.SendMessage(ctx, op.sendRequest()); err == nil {
			w.sent(op, res)
		}
	}
	op.Outcome = chaos.OK
	if err != nil {
		op.ended(chaos.EndingOf(err))
	}
	if op.Outcome == chaos.OK {
		w.told.raise(op.Channel, op.Seq)
	}
	w.rec.Done(op)
	return token
}

// changed copies the time and the message of an answer to an edit or a recall into op. Both are nil
// if the call failed or the answer lacks them.
func (w *world) changed(op *Op, at *timestamppb.Timestamp, m *parleyv1.ChannelMessage) {
	if at != nil {
		op.TimeMS = at.AsTime().UnixMilli()
	}
	if m != nil {
		op.End = w.rec.Now() // now, because note takes time
		op.Copies = []int{w.note(m)}
	}
}

func (op *Op) sendRequest() *parleyv1.SendMessageRequest {
	return &parleyv1.SendMessageRequest{
		ChannelId: op.Channel, Content: op.Content, ClientMsgId: op.ClientMsgID, Metadata: op.Metadata,
	}
}

// sentResponse is the answer to a send to a channel or a session.
type sentResponse interface {
	GetMsgId() string
	GetSeq() int64
	GetCount() int64
	GetDuplicate() bool
	GetEpoch() string
	GetMsgTime() *timestamppb.Timestamp
}

// sent copies the answer to a successful send into op, and adds the message to the pool.
func (w *world) sent(op *Op, res sentResponse) {
	op.MsgID, op.Seq, op.Count, op.Duplicate = res.GetMsgId(), res.GetSeq(), res.GetCount(), res.GetDuplicate()
	op.Epoch, op.TimeMS = res.GetEpoch(), res.GetMsgTime().AsTime().UnixMilli()
	w.pool.add(ackedMessage{op.Channel, op.MsgID, op.From})
}

// batch sends 2 to 11 messages like op in one call, to up to two channels. It returns the outcome
// of the last one.
func (w *rawWriter) batch(ctx context.Context, op Op) chaos.Outcome {
	channels := []string{op.Channel, w.pickPlain(w.rng)}
	batch := w.rec.ID()
	ops := make([]Op, 2+w.rng.IntN(10))
	req := new(parleyv1.SendMessagesRequest)
	for i := range ops {
		ops[i] = op
		ops[i].Batch, ops[i].Item, ops[i].Channel = batch, i, channels[w.rng.IntN(len(channels))]
		ops[i].ClientMsgID = fmt.Sprintf("%s-%d", op.ClientMsgID, i)
		ops[i].Content = text(w.rng, ops[i].ClientMsgID)
		req.Messages = append(req.Messages, ops[i].sendRequest())
	}
	for i := range ops {
		w.rec.Start(&ops[i])
	}
	ctx, cancel := w.client.Call(ctx, rawLimit)
	defer cancel()
	res, err := w.client.SendMessages(ctx, req)
	for i := range ops {
		op := &ops[i]
		op.Outcome = chaos.OK
		switch {
		case err != nil:
			op.ended(chaos.EndingOf(err))
		case i >= len(res.GetResults()), res.GetResults()[i].GetResult() == nil:
			op.Outcome, op.Err = chaos.Unknown, "no result"
		case res.GetResults()[i].GetSent() != nil:
			w.sent(op, res.GetResults()[i].GetSent())
			w.told.raise(op.Channel, op.Seq)
		default:
			op.ended(chaos.EndingOfItem(res.GetResults()[i].GetError()))
		}
		w.rec.Done(op)
	}
	return ops[len(ops)-1].Outcome
}
