package queues

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// callLimit is the timeout of one call.
const callLimit = 5 * time.Second

// client is the generated clients for one node, with a token. It does not retry, so the answers are
// the server's own.
type client struct {
	*chaos.Conn
	parleyv1connect.QueueServiceClient

	admin parleyv1connect.AdminServiceClient
}

func newClient(addr, token string) *client {
	c := chaos.NewConn(addr, token)
	return &client{
		Conn: c, QueueServiceClient: parleyv1connect.NewQueueServiceClient(c.HTTP, c.URL(), connect.WithGRPC()),
		admin: parleyv1connect.NewAdminServiceClient(c.HTTP, c.URL(), connect.WithGRPC()),
	}
}

// with returns the client with another token.
func (c *client) with(token string) *client {
	other := *c
	other.Conn = c.Conn.With(token)
	return &other
}

// call returns a context for one call, with the token and a timeout of callLimit.
func (c *client) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.Call(ctx, callLimit)
}

// end records the ending of a call.
func (op *Op) end(err error) { op.ended(chaos.EndingOf(err)) }

// ended records the ending of a call, or of one item of it.
func (op *Op) ended(e chaos.Ending) {
	op.End, op.Outcome, op.Err = now(), e.Outcome, e.String()
	if e.Outcome != chaos.OK {
		op.Reason = reasonText(e.Reason)
	}
}

func reasonText(reason parleyv1.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// The kinds of messages. The prefix of a message's mark determines how consumers settle it, so all
// consumers do the same.
const (
	good   = "good"   // it is acknowledged
	twice  = "twice"  // the first two attempts fail
	poison = "poison" // every attempt fails
	reject = "reject" // fails with a code that is not retried
	bury   = "bury"   // the consumer sends it to the dead letters
	hand   = "hand"   // half of its attempts are released, by Release
	long   = "long"   // takes longer than the ack timeout and is extended
	late   = "late"   // the first attempt takes longer than the ack timeout and is not extended
	lethal = "lethal" // the first two attempts kill the process, if it is one that faults kill
)

// nackReason is the reason in every nack.
const nackReason = "requested by the test"

// verdict is the settlement of a delivery.
type verdict struct {
	kind Kind // Ack, Nack or Release
	// delayMS is none if the consumer requests no delay.
	delayMS int64
	code    string
	bury    bool
}

// dead reports whether the message is to become a dead letter, by the flag or by its code.
func (v verdict) dead() bool { return v.bury || v.code == rejectCode }

// decide returns the verdict for an attempt of a message.
func decide(rng *rand.Rand, mark string, attempt int) verdict {
	v := verdict{kind: Nack, delayMS: none}
	switch kind := kindOf(mark); {
	case kind == poison, kind == twice && attempt <= 2:
		if rng.IntN(4) == 0 {
			v.delayMS = int64(rng.IntN(300))
		}
	case kind == reject:
		v.code = rejectCode
	case kind == bury:
		v.bury = true
	case kind == hand && rng.IntN(2) == 0:
		v.kind = Release
	default:
		v.kind = Ack
	}
	return v
}

// rejectCode is one of the topics' non_retryable_codes.
const rejectCode = "rejected"

// maxPayload is the largest size of a payload.
const maxPayload = 256 << 10

// payload returns a message's payload: its mark, a separator, and filler of random length. One in
// 50 payloads has thousands of bytes, and one in 400 the largest size.
func payload(rng *rand.Rand, mark string) []byte {
	n := rng.IntN(100)
	switch {
	case rng.IntN(400) == 0:
		n = maxPayload - len(mark) - 3
	case rng.IntN(50) == 0:
		n = 4000 + rng.IntN(8000)
	}
	return append([]byte(mark+"|"), bytes.Repeat([]byte{0xff, 0, '\r'}, n/3)...)
}

// markOf returns the mark of a payload.
func markOf(payload []byte) string {
	mark, _, _ := bytes.Cut(payload, []byte("|"))
	return string(mark)
}

// kindOf returns the kind of a message from its mark.
func kindOf(mark string) string {
	kind, _, _ := strings.Cut(mark, "-")
	return kind
}

func newMark(kind, client string, n int) string { return fmt.Sprintf("%s-%s-%d", kind, client, n) }

// errMissing is the error of an answer without an item.
var errMissing = errors.New("no result")

func orMissing(err error) error {
	if err == nil {
		return errMissing
	}
	return err
}

// endAll records the endings of the items of one call: results for each, or the error of the call.
// done, unless nil, is called with each result.
func endAll[R interface{ GetError() *parleyv1.ItemError }](ops []*Op, results []R, err error, done func(op *Op, r R)) {
	for i, op := range ops {
		if err != nil || i >= len(results) {
			op.end(orMissing(err))
			continue
		}
		op.ended(chaos.EndingOfItem(results[i].GetError()))
		if done != nil {
			done(op, results[i])
		}
	}
}

// produced copies the result of an accepted message into op. It ignores other results.
func (op *Op) produced(r *parleyv1.ProduceResult) {
	if m := r.GetProduced(); m != nil {
		op.MessageID, op.Partition, op.Duplicate = m.GetMessageId(), int(m.GetPartition()), m.GetDuplicate()
		if m.GetDueTime() != nil {
			op.DueMS = m.GetDueTime().AsTime().UnixMilli()
		}
	}
}
