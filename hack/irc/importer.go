package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/user"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// batchSize is the number of lines in a call of the import.
	batchSize = 50
	// twiceEvery and againEvery are the distances of the batches that are sent by two importers at a
	// time, and that are sent again afterwards.
	twiceEvery, againEvery = 4, 10
)

// importer sends the lines, edits each, and recalls some.
type importer struct {
	*journal

	clients *clients
	editors int
	// done counts the lines whose changes are complete, late ones aside.
	done atomic.Int64

	mu   sync.Mutex
	late []int32 // the lines whose last edit and recall come at the end; guarded by mu
}

// run imports all days: one importer per node, which sends every n-th day in batches, and editors,
// which edit what was sent.
func (im *importer) run(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	sent := make(chan int32, 4*im.editors)
	var sending sync.WaitGroup
	nodes := len(im.clients.nodes)
	for n := range nodes {
		sending.Add(1)
		work.Go(func() error {
			defer sending.Done()
			for d := n; d < len(im.days.days); d += nodes {
				if err := im.sendDay(working, d, sent); err != nil {
					return err
				}
			}
			return nil
		})
	}
	work.Go(func() error {
		sending.Wait()
		close(sent)
		return nil
	})
	for range im.editors {
		work.Go(func() error {
			for i := range sent {
				if err := im.change(working, i, false); err != nil {
					return err
				}
				im.done.Add(1)
			}
			return nil
		})
	}
	return work.Wait()
}

// finish makes the last changes of the late lines, of which many have expired.
func (im *importer) finish(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(im.editors)
	for _, i := range im.late {
		work.Go(func() error { return im.change(working, i, true) })
	}
	return work.Wait()
}

// sendDay sends the lines of a day, in order.
func (im *importer) sendDay(ctx context.Context, d int, sent chan<- int32) error {
	day := &im.days.days[d]
	for n, first := 0, day.first; first < day.end; n, first = n+1, first+batchSize {
		end := min(first+batchSize, day.end)
		again := 1
		if n%twiceEvery == 0 {
			again = 2
		}
		var both errgroup.Group
		receipts := make([][]parley.Result, again)
		for k := range again {
			client := im.clients.all
			if k > 0 {
				client = im.clients.nodes[(d+n)%len(im.clients.nodes)]
			}
			both.Go(func() (err error) {
				receipts[k], err = im.send(ctx, client, first, end)
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return err
		}
		im.takeReceipts(first, receipts)
		if n%againEvery == 0 {
			if err := im.repeat(ctx, im.clients.nodes[(d+n+1)%len(im.clients.nodes)], first, end); err != nil {
				return err
			}
		}
		for i := first; i < end; i++ {
			select {
			case sent <- int32(i): //nolint:gosec // far fewer
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// send sends the lines from first up to end in one call.
func (im *importer) send(ctx context.Context, client *parley.Client, first, end int) ([]parley.Result, error) {
	batch := make([]parley.Outgoing, 0, end-first)
	for i := first; i < end; i++ {
		l := &im.days.lines[i]
		batch = append(batch, parley.Outgoing{
			ChannelID: im.days.channels[l.channel], Content: l.content, ClientMsgID: l.id, Sender: l.from,
		})
	}
	results, err := client.SendBatch(ctx, batch)
	for k := range results {
		if results[k].Err != nil {
			err = errors.Join(err, fmt.Errorf("send %s: %w", batch[k].ClientMsgID, results[k].Err))
			break
		}
	}
	return results, err
}

// takeReceipts records the results of one batch, which was sent once or twice at a time.
func (im *importer) takeReceipts(first int, receipts [][]parley.Result) {
	for k := range receipts[0] {
		i, fresh := int32(first+k), 0 //nolint:gosec // far fewer
		got := receipts[0][k].Receipt
		im.acked(i, 0, got.MsgID, got.Seq)
		for _, results := range receipts {
			r := results[k].Receipt
			if !r.Duplicate {
				fresh++
			}
			if r.Seq != got.Seq || r.MsgID != got.MsgID {
				im.Wrongf("%s was sent twice and is entry %d and entry %d", im.days.lines[i].id, got.Seq, r.Seq)
			}
		}
		if fresh > 1 {
			im.Wrongf("%s was sent twice, and no answer says duplicate", im.days.lines[i].id)
		}
		if len(receipts) > 1 {
			im.Add("lines sent twice at a time", 1)
		}
	}
}

// repeat sends lines once more, which must be answered as duplicates.
func (im *importer) repeat(ctx context.Context, client *parley.Client, first, end int) error {
	results, err := im.send(ctx, client, first, end)
	if err != nil {
		return err
	}
	for k := range results {
		i, r := int32(first+k), results[k].Receipt //nolint:gosec // far fewer
		if s := im.state(i); !r.Duplicate || r.Seq != int64(s.seq) || r.MsgID != s.msgID {
			im.Wrongf("%s is entry %d; sent again it is entry %d, duplicate %t", im.days.lines[i].id, s.seq, r.Seq, r.Duplicate)
		}
	}
	im.Add("lines sent again", len(results))
	return nil
}

// repeatAll sends all lines once more, in large batches.
func (im *importer) repeatAll(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(len(im.clients.nodes))
	for d, day := range im.days.days {
		work.Go(func() error {
			for first := day.first; first < day.end; first += 10 * batchSize {
				client := im.clients.nodes[d%len(im.clients.nodes)]
				if err := im.repeat(working, client, first, min(first+10*batchSize, day.end)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// change makes the changes of a line, one after another, each on another node: all edits and the
// recall, or of a late line all but the last. late makes those that are left.
func (im *importer) change(ctx context.Context, i int32, late bool) error {
	versions := make([]version, 0, edits+1)
	for v := version(1); v <= edits; v++ {
		versions = append(versions, v)
	}
	if i%recallEvery == 0 {
		versions = append(versions, recalled)
	}
	if i%lateEvery < 2 { // of the recalled ones half, and as many others
		if late {
			versions = versions[edits-1:]
		} else {
			versions = versions[:edits-1]
			im.mu.Lock()
			im.late = append(im.late, i)
			im.mu.Unlock()
		}
	}
	for k, v := range versions {
		client := im.clients.nodes[(int(i)+k)%len(im.clients.nodes)]
		if done, err := im.changeOnce(ctx, client, i, v); err != nil || done {
			return err
		}
	}
	return nil
}

// changeOnce requests a version of a line. It returns true if the line has expired.
func (im *importer) changeOnce(ctx context.Context, client *parley.Client, i int32, v version) (gone bool, err error) {
	r, err := im.do(ctx, client, i, v)
	if err != nil {
		return im.refused(ctx, i, v, err)
	}
	im.acked(i, v, r.MsgID, r.Seq)
	im.Add(map[bool]string{false: "edits", true: "recalls"}[v == recalled], 1)
	if i%extraEvery != 0 {
		return false, nil
	}
	again, err := im.do(ctx, client, i, v)
	if err != nil {
		return im.refused(ctx, i, v, err)
	}
	if !again.Duplicate || again.Seq != r.Seq {
		im.Wrongf("%s is entry %d; repeated it is entry %d, duplicate %t", im.days.lines[i].opID(v), r.Seq, again.Seq, again.Duplicate)
	}
	im.Add("changes repeated", 1)
	if v != recalled {
		return false, nil
	}
	_, err = im.do(ctx, client, i, edits+1)
	if errors.Is(err, parley.ErrMessageRecalled) {
		return false, nil
	}
	if err == nil {
		im.Wrongf("%s was edited after its recall", im.days.lines[i].id)
		return false, nil
	}
	return im.refused(ctx, i, edits+1, err)
}

// do calls the server for a version of a line, as its sender.
func (im *importer) do(ctx context.Context, client *parley.Client, i int32, v version) (*parley.Receipt, error) {
	l, s := &im.days.lines[i], im.state(i)
	ctx, id := user.As(ctx, l.from), parley.WithClientMsgID(l.opID(v))
	if v == recalled {
		return client.Recall(ctx, im.days.channels[l.channel], s.msgID, id)
	}
	return client.Edit(ctx, im.days.channels[l.channel], s.msgID, l.text(v), id)
}

// refused decides about a change that failed. It is legal only if the message has really expired.
func (im *importer) refused(ctx context.Context, i int32, v version, failed error) (gone bool, err error) {
	l, s := &im.days.lines[i], im.state(i)
	if !errors.Is(failed, parley.ErrMessageNotFound) {
		return false, fmt.Errorf("%s: %w", l.opID(v), failed)
	}
	expired, err := im.clients.expired(ctx, int(i)%len(im.clients.nodes), im.days.channels[l.channel], int64(s.seq))
	if err != nil {
		return false, err
	}
	if !expired {
		im.Wrongf("%s was not found, but it is entry %d, which has not expired", l.id, s.seq)
	}
	im.setExpired(i)
	im.Add("changes of expired messages", 1)
	return true, nil
}
