package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
	parley "github.com/parleyhq/parley/sdk/go"
)

// writeLimit is the timeout of a write through the SDK. It is longer than any fault that leaves
// some nodes working.
const writeLimit = 25 * time.Second

// writer is a client that writes through the SDK.
type writer struct {
	*world

	name, addr, subject string
	client              *parley.Client
	rng                 *rand.Rand
	n                   int
	// last are sends that may be repeated with the same client_msg_id.
	last []Op
}

// newWriter creates a writer. Several writers may have the same subject, so that they change the
// same messages concurrently.
func (w *world) newWriter(seed uint64, name, addr, subject string) (*writer, error) {
	client, err := parley.New(addr, parley.WithToken(w.token(subject)))
	if err != nil {
		return nil, err
	}
	return &writer{world: w, name: name, addr: addr, subject: subject, client: client, rng: chaos.Source(seed, name)}, nil
}

// run writes until ctx ends. It finishes writes in flight.
func (w *writer) run(ctx context.Context) {
	defer w.client.Close()
	for chaos.Pause(ctx, w.rng, w.load.WriteEvery) {
		ctx := context.WithoutCancel(ctx)
		switch n := w.rng.IntN(100); {
		case n < 55:
			w.send(ctx, w.pick(w.rng))
		case n < 63:
			w.batch(ctx)
		case n < 80:
			w.edit(ctx)
		case n < 95:
			w.recall(ctx)
		default:
			w.repeat(ctx)
		}
	}
}

// op returns a new op with a unique client_msg_id.
func (w *writer) op(kind Kind, channel string) Op {
	w.n++
	return Op{
		Client: w.name, Addr: w.addr, Kind: kind, Limit: int64(writeLimit), Channel: channel, From: w.subject,
		ClientMsgID: fmt.Sprintf("%s-%d", w.name, w.n), After: unset, Before: unset,
	}
}

// message returns the op of a send with a text and, one time in four, metadata.
func (w *writer) message(channel string) Op {
	op := w.op(Send, channel)
	op.Content = text(w.rng, op.ClientMsgID)
	if w.rng.IntN(4) == 0 {
		op.Metadata = map[string]string{"mark": markOf(op.ClientMsgID), "empty": ""}
	}
	return op
}

func (op *Op) outgoing() parley.Outgoing {
	return parley.Outgoing{ChannelID: op.Channel, Content: op.Content, ClientMsgID: op.ClientMsgID, Metadata: op.Metadata}
}

func (w *writer) send(ctx context.Context, channel string) {
	op := w.message(channel)
	w.resend(ctx, &op)
	if op.Outcome != chaos.Unknown && w.rng.IntN(10) > 0 {
		return
	}
	if w.last = append(w.last, op); len(w.last) > 50 {
		w.last = w.last[1:]
	}
}

// resend sends the message of an op, for the first time or again, and records the op.
func (w *writer) resend(ctx context.Context, op *Op) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	w.rec.Start(op)
	var r *parley.Receipt
	var err error
	options := []parley.SendOption{parley.WithClientMsgID(op.ClientMsgID), parley.WithMetadata(op.Metadata)}
	if id, ok := sessionOf(op.Channel); ok {
		r, err = w.client.Session(id).Append(ctx, parley.SessionRoleUser, op.Content, options...)
	} else {
		r, err = w.client.Send(ctx, op.Channel, op.Content, options...)
	}
	w.done(op, r, err)
}

// repeat sends an earlier message again, with the same client_msg_id.
func (w *writer) repeat(ctx context.Context) {
	if len(w.last) == 0 {
		return
	}
	i := w.rng.IntN(len(w.last))
	was := w.last[i]
	w.last = append(w.last[:i], w.last[i+1:]...)
	op := Op{
		Client: w.name, Addr: w.addr, Kind: Send, Limit: int64(writeLimit), Channel: was.Channel, From: w.subject,
		ClientMsgID: was.ClientMsgID, Content: was.Content, Metadata: was.Metadata, Repeat: true, After: unset, Before: unset,
	}
	w.resend(ctx, &op)
}

// batch sends 2 to 19 messages to up to three channels in one call.
func (w *writer) batch(ctx context.Context) {
	channels := []string{hot, w.pickPlain(w.rng), w.pickPlain(w.rng)}
	ops := make([]Op, 2+w.rng.IntN(18))
	out := make([]parley.Outgoing, len(ops))
	batch := w.rec.ID()
	for i := range ops {
		ops[i] = w.message(channels[w.rng.IntN(len(channels))])
		ops[i].Batch, ops[i].Item = batch, i
		out[i] = ops[i].outgoing()
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	for i := range ops {
		w.rec.Start(&ops[i])
	}
	results, _ := w.client.SendBatch(ctx, out)
	for i := range ops {
		w.done(&ops[i], results[i].Receipt, results[i].Err)
	}
}

func (w *writer) edit(ctx context.Context) {
	target, ok := w.pool.pick(w.rng, w.subject)
	if !ok {
		return
	}
	op := w.op(Edit, target.channel)
	op.MsgID, op.Content = target.msgID, text(w.rng, op.ClientMsgID)
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	w.rec.Start(&op)
	r, err := w.client.Edit(ctx, op.Channel, op.MsgID, op.Content, parley.WithClientMsgID(op.ClientMsgID))
	w.done(&op, r, err)
}

// recall recalls one of the subject's own messages or, as a moderator, anyone's.
func (w *writer) recall(ctx context.Context) {
	from := w.subject
	if w.rng.IntN(4) == 0 {
		from = ""
	}
	target, ok := w.pool.pick(w.rng, from)
	if !ok {
		return
	}
	w.recallMessage(ctx, target)
}

// recallMessage recalls a message, records the call, and adds the message to the pool again.
func (w *writer) recallMessage(ctx context.Context, target ackedMessage) {
	op := w.op(Recall, target.channel)
	op.MsgID = target.msgID
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	w.rec.Start(&op)
	r, err := w.client.Recall(ctx, op.Channel, op.MsgID, parley.WithClientMsgID(op.ClientMsgID))
	w.done(&op, r, err)
	w.pool.add(target) // newest again, so another client is likely to edit it
}

// done sets the result of a write and records the op.
func (w *writer) done(op *Op, r *parley.Receipt, err error) {
	if err == nil {
		op.Outcome, op.Seq, op.Count, op.Duplicate, op.Epoch = chaos.OK, r.Seq, r.Count, r.Duplicate, r.Epoch
		if !r.Time.IsZero() && r.Time.Unix() != 0 {
			op.TimeMS = r.Time.UnixMilli()
		}
		if r.Message != nil {
			op.End = w.rec.Now() // now, because note takes time
			op.Copies = []int{w.note(r.Message)}
		}
		if op.Kind == Send {
			op.MsgID = r.MsgID
			w.pool.add(ackedMessage{op.Channel, r.MsgID, op.From})
		}
		w.told.raise(op.Channel, r.Seq)
	} else {
		op.ended(chaos.EndingOfSDK(err))
	}
	w.rec.Done(op)
}
