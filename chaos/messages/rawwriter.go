package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// rawLimit bounds one call of the generated client.
const rawLimit = 5 * time.Second

// raw is the generated client with nothing around it but a token: what it is answered is what the server said.
type raw struct {
	parleyv1connect.MessageServiceClient

	http  *http.Client
	token string
}

func newRaw(addr, token string) *raw {
	c := NewHTTPClient()
	return &raw{
		MessageServiceClient: parleyv1connect.NewMessageServiceClient(c, "http://"+addr, connect.WithGRPC()),
		http:                 c, token: token,
	}
}

// call gives the context of one call.
func (r *raw) call(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	return r.authorize(ctx), cancel
}

func (r *raw) authorize(ctx context.Context) context.Context { return Authorize(ctx, r.token) }

func (r *raw) close() { r.http.CloseIdleConnections() }

// rawWriter makes each write once, and takes its answer as it is.
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
		world: w, name: name, addr: addr, subject: subject, client: newRaw(addr, w.token(subject)), rng: source(seed, name),
	}
}

func (w *rawWriter) run(ctx context.Context) {
	defer w.client.close()
	for every := w.load.WriteEvery; pause(ctx, w.rng, every); {
		every = w.load.WriteEvery
		if w.one(context.WithoutCancel(ctx)) == Unknown {
			every = afterFailure
		}
	}
}

// afterFailure is the pause after a call that failed: a node that is not there refuses thousands of calls a second.
const afterFailure = 300 * time.Millisecond

// one makes one write of some kind, and gives what came of it.
func (w *rawWriter) one(ctx context.Context) Outcome {
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
	// Half of what is unknown stays so, and is stored once or not at all.
	if op.Outcome == Unknown && w.rng.IntN(2) == 0 && len(w.open) < 100 {
		w.open = append(w.open, op)
	}
	return op.Outcome
}

func (w *rawWriter) call(ctx context.Context, op *Op) {
	ctx, cancel := w.client.call(ctx, rawLimit)
	defer cancel()
	var err error
	switch op.Kind {
	case Edit:
		var res *parleyv1.EditMessageResponse
		res, err = w.client.EditMessage(ctx, &parleyv1.EditMessageRequest{
			ChannelId: op.Channel, MsgId: op.MsgID, Content: op.Content, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
	case Recall:
		var res *parleyv1.RecallMessageResponse
		res, err = w.client.RecallMessage(ctx, &parleyv1.RecallMessageRequest{
			ChannelId: op.Channel, MsgId: op.MsgID, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
	default:
		var res *parleyv1.SendMessageResponse
		res, err = w.client.SendMessage(ctx, op.sendRequest())
		w.sent(op, res)
	}
	op.Outcome = OK
	if err != nil {
		op.Outcome, op.Code, op.Err = rawOutcome(err)
	}
	if op.Outcome == OK {
		w.told.raise(op.Channel, op.Seq)
	}
	w.rec.Done(op)
}

// changed records the time and the message of the answer to an edit or a recall. An answer without them, and a failed call, have
// neither.
func (w *world) changed(op *Op, at *timestamppb.Timestamp, m *parleyv1.ChannelMessage) {
	if at != nil {
		op.TimeMS = at.AsTime().UnixMilli()
	}
	if m != nil {
		op.End = w.rec.Now() // before the copies are compared
		op.Copies = []int{w.note(m)}
	}
}

func (op *Op) sendRequest() *parleyv1.SendMessageRequest {
	return &parleyv1.SendMessageRequest{
		ChannelId: op.Channel, Content: op.Content, ClientMsgId: op.ClientMsgID, Metadata: op.Metadata,
	}
}

// sent takes the answer to a send, nil if there is none.
func (w *rawWriter) sent(op *Op, res *parleyv1.SendMessageResponse) {
	if res == nil {
		return
	}
	op.MsgID, op.Seq, op.Count, op.Duplicate = res.GetMsgId(), res.GetSeq(), res.GetCount(), res.GetDuplicate()
	op.Epoch, op.TimeMS = res.GetEpoch(), res.GetMsgTime().AsTime().UnixMilli()
	w.world.pool.add(sent{op.Channel, op.MsgID, op.From})
}

// batch makes a batch whose first item is like op, and gives what came of the last.
func (w *rawWriter) batch(ctx context.Context, op Op) Outcome {
	channels := []string{op.Channel, w.pick(w.rng)}
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
	ctx, cancel := w.client.call(ctx, rawLimit)
	defer cancel()
	res, err := w.client.SendMessages(ctx, req)
	for i := range ops {
		op := &ops[i]
		op.Outcome = OK
		switch {
		case err != nil:
			op.Outcome, op.Code, op.Err = rawOutcome(err)
		case i >= len(res.GetResults()):
			op.Outcome, op.Err = Unknown, "no result"
		case res.GetResults()[i].GetSent() != nil:
			w.sent(op, res.GetResults()[i].GetSent())
			w.told.raise(op.Channel, op.Seq)
		default:
			item := res.GetResults()[i].GetError()
			op.Code, op.Err = CodeText(item.GetCode()), item.GetMessage()
			op.Outcome = OutcomeOfReason(item.GetDetail().GetReason())
		}
		w.rec.Done(op)
	}
	return ops[len(ops)-1].Outcome
}

// rawOutcome judges a call's error.
func rawOutcome(err error) (o Outcome, code, text string) {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return Unknown, "unknown", err.Error()
	}
	return OutcomeOfReason(detailOf(err).GetReason()), ce.Code().String(), ce.Message()
}

// OutcomeOfReason returns the outcome of a call that failed for a reason. The proto says of the final reasons and of the retryable
// ones named here that nothing was stored.
func OutcomeOfReason(r parleyv1.ErrorReason) Outcome {
	switch {
	case r == parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return Unknown
	case r < firstRetryable,
		r == parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED,
		r == parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		r == parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL,
		r == parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED,
		r == parleyv1.ErrorReason_ERROR_REASON_NODE_FULL,
		r == parleyv1.ErrorReason_ERROR_REASON_BATCH_ABORTED:
		return Failed
	default:
		return Unknown
	}
}
