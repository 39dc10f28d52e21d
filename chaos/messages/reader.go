package messages

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// readLimit is the timeout of a read.
const readLimit = 8 * time.Second

// reader reads pages and messages from one node, without retries.
type reader struct {
	*world

	name, addr string
	client     *raw
	rng        *rand.Rand
}

func (w *world) newReader(seed uint64, name, addr string) *reader {
	return &reader{world: w, name: name, addr: addr, client: newRaw(addr, w.token(name)), rng: chaos.Source(seed, name)}
}

func (r *reader) run(ctx context.Context) {
	defer r.client.Close()
	for every := r.load.ReadEvery; chaos.Pause(ctx, r.rng, every); {
		every = r.load.ReadEvery
		ctx := context.WithoutCancel(ctx)
		if r.rng.IntN(4) == 0 {
			if !r.get(ctx) {
				every = chaos.AfterFailure
			}
			continue
		}
		op := r.op(r.pickRead(r.rng))
		if r.rng.IntN(10) < 7 {
			op.MinSeq = r.told.get(op.Channel)
		}
		switch head := r.told.get(op.Channel); r.rng.IntN(5) {
		case 0, 1: // the newest page
		case 2:
			op.After = max(0, head-r.rng.Int64N(200))
		case 3:
			op.After = 0
		default:
			op.Before = 1 + r.rng.Int64N(head+2)
		}
		sizes := []int32{1, 10, 50, 200}
		if _, ok := r.list(ctx, op, sizes[r.rng.IntN(len(sizes))], 1+r.rng.IntN(3)); !ok {
			every = chaos.AfterFailure
		}
	}
}

func (r *reader) op(channel string) Op {
	return Op{
		Client: r.name, Addr: r.addr, Kind: List, Limit: int64(readLimit), Channel: channel, After: unset, Before: unset,
	}
}

// list reads the pages of a query to its end, but at most the given number. Each page is an op of
// its own, recorded as a query that continues after the previous page. end reports whether the last
// page was reached, ok whether all calls succeeded.
func (r *reader) list(ctx context.Context, query Op, size int32, pages int) (end, ok bool) {
	req := &parleyv1.ListMessagesRequest{ChannelId: query.Channel, MinSeq: query.MinSeq, PageSize: size}
	if query.After != unset {
		req.AfterSeq = new(query.After)
	}
	if query.Before != unset {
		req.BeforeSeq = new(query.Before)
	}
	for range pages {
		op := query
		r.rec.Start(&op)
		callCtx, cancel := r.client.Call(ctx, readLimit)
		res, err := r.client.page(callCtx, req)
		cancel()
		if err != nil {
			op.ended(chaos.EndingOf(err))
			r.rec.Done(&op)
			return false, false
		}
		op.End = r.rec.Now() // now, because note takes time
		op.Outcome, op.Head, op.Epoch = chaos.OK, res.GetHeadSeq(), res.GetEpoch()
		op.More = res.GetNextPageToken() != ""
		for _, m := range res.GetMessages() {
			op.Copies = append(op.Copies, r.note(m))
			if query.After != unset {
				query.After = m.GetSeq()
			} else {
				query.Before = m.GetSeq()
			}
		}
		r.told.raise(op.Channel, op.Head)
		r.rec.Done(&op)
		if !op.More {
			return true, true
		}
		req.PageToken = res.GetNextPageToken()
	}
	return false, true
}

// get reads one message. It returns false if the call failed, and true if it succeeded or there is
// no message to read.
func (r *reader) get(ctx context.Context) bool {
	target, ok := r.world.pool.pick(r.rng, "")
	if _, session := sessionOf(target.channel); !ok || session {
		return true // no call reads one message of a session
	}
	op := r.op(target.channel)
	op.Kind, op.MsgID = Get, target.msgID
	r.rec.Start(&op)
	ctx, cancel := r.client.Call(ctx, readLimit)
	defer cancel()
	res, err := r.client.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: op.Channel, MsgId: op.MsgID})
	op.Outcome = chaos.OK
	if err != nil {
		op.ended(chaos.EndingOf(err))
	} else {
		op.End, op.Epoch = r.rec.Now(), res.GetEpoch()
		op.Copies = []int{r.note(res.GetMessage())}
	}
	r.rec.Done(&op)
	return err == nil
}

// historian reads through the SDK, as a program would, and moves between the nodes.
type historian struct {
	*world

	name, addr string
	client     *parley.Client
	rng        *rand.Rand
}

func (w *world) newHistorian(seed uint64, name, addr string) (*historian, error) {
	client, err := parley.New(addr, parley.WithToken(w.token(name)))
	if err != nil {
		return nil, err
	}
	return &historian{world: w, name: name, addr: addr, client: client, rng: chaos.Source(seed, name)}, nil
}

func (r *historian) run(ctx context.Context) {
	defer r.client.Close()
	for chaos.Pause(ctx, r.rng, 2*r.load.ReadEvery) {
		r.one(context.WithoutCancel(ctx))
	}
}

func (r *historian) one(ctx context.Context) {
	op := Op{
		Client: r.name, Addr: r.addr, Kind: List, Limit: int64(writeLimit), Channel: r.pickRead(r.rng), After: unset, Before: unset,
	}
	limit := 1 + r.rng.IntN(300)
	if op.Channel == giant {
		limit = 1 + limit/5 // a page holds only 14 of its messages
	}
	// At most 20 pages, so that a fault that delays each call does not use up the limit.
	options := []parley.HistoryOption{parley.Limit(limit), parley.PageSize(1 + limit/20 + r.rng.IntN(100))}
	if r.rng.IntN(2) == 0 {
		op.After = max(0, r.told.get(op.Channel)-r.rng.Int64N(200))
		options = append(options, parley.AfterSeq(op.After))
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	r.rec.Start(&op)
	op.Outcome = chaos.OK
	for m, err := range r.client.History(ctx, op.Channel, options...) {
		if err != nil {
			op.ended(chaos.EndingOfSDK(err))
			break
		}
		op.Copies = append(op.Copies, r.note(m))
	}
	op.More = len(op.Copies) == limit
	r.rec.Done(&op)
}
