package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

// freshness is how old the newest acknowledged message may be that a list lacks.
const freshness = time.Second

// reader reads pages and messages of all channels from a node while they are written, and checks
// that what it reads is whole and not too old.
type reader struct {
	*journal

	clients *clients
	node    int
	rand    *rand.Rand

	mu     sync.Mutex // guards the fields below
	copies []copied
	oldest []int64 // of each channel, the highest that was answered
}

// readEvery is the time between two reads of a reader.
const readEvery = 300 * time.Millisecond

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	for verdict.Sleep(ctx, readEvery) == nil {
		c := r.rand.IntN(len(r.days.channels))
		var err error
		switch r.rand.IntN(3) {
		case 0:
			err = r.page(ctx, c, &parleyv1.ListMessagesRequest{})
		case 1:
			err = r.page(ctx, c, &parleyv1.ListMessagesRequest{AfterSeq: new(int64)})
		default:
			err = r.message(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.Wrongf("node %d: a read failed: %v", r.node, err)
		}
	}
}

// known is what had been acknowledged for a while when a read began.
func (r *reader) known(i int32, began time.Time) (state, bool) {
	s := r.state(i)
	return s, s.seq > 0 && began.Sub(s.at) > freshness
}

// page reads the newest page of a channel, or the oldest.
func (r *reader) page(ctx context.Context, c int, req *parleyv1.ListMessagesRequest) error {
	began := time.Now()
	req.ChannelId, req.PageSize = r.days.channels[c], 100
	head := r.headBefore(c, began.Add(-freshness))
	page, err := r.clients.list(ctx, r.node, req)
	if err != nil {
		return err
	}
	r.Add("pages read meanwhile", 1)
	name := fmt.Sprintf("node %d, a page of %s", r.node, req.GetChannelId())
	if page.GetHeadSeq() < head {
		r.Wrongf("%s ends at %d, and %d was acknowledged before", name, page.GetHeadSeq(), head)
	}
	r.mu.Lock()
	if page.GetOldestSeq() < r.oldest[c] {
		r.Wrongf("%s begins at %d, and began at %d before", name, page.GetOldestSeq(), r.oldest[c])
	}
	r.oldest[c] = max(r.oldest[c], page.GetOldestSeq())
	r.mu.Unlock()
	step := int64(-1)
	if req.AfterSeq != nil {
		step = 1
	}
	last := (*parley.Message)(nil)
	for _, m := range page.GetMessages() {
		if last != nil && (m.GetCount() != last.GetCount()+step || (m.GetSeq()-last.GetSeq())*step <= 0) {
			r.Wrongf("%s has message %d of the log after %d", name, m.GetCount(), last.GetCount())
		}
		if m.GetSeq() < page.GetOldestSeq() {
			r.Wrongf("%s has entry %d, and begins at %d", name, m.GetSeq(), page.GetOldestSeq())
		}
		last = m
		r.take(name, m, began)
	}
	if req.AfterSeq != nil && len(page.GetMessages()) > 0 && page.GetMessages()[0].GetSeq() != page.GetOldestSeq() {
		r.Wrongf("%s begins with entry %d, not with the oldest, %d", name, page.GetMessages()[0].GetSeq(), page.GetOldestSeq())
	}
	return nil
}

// message reads a message that was sent a while ago.
func (r *reader) message(ctx context.Context) error {
	began := time.Now()
	i := int32(r.rand.IntN(len(r.days.lines))) //nolint:gosec // far fewer
	s, ok := r.known(i, began)
	if !ok {
		return nil
	}
	l := &r.days.lines[i]
	res, err := retry(ctx, func(ctx context.Context) (*parleyv1.GetMessageResponse, error) {
		return r.clients.raw[r.node].GetMessage(ctx, &parleyv1.GetMessageRequest{
			ChannelId: r.days.channels[l.channel], MsgId: s.msgID,
		})
	})
	if reasonOf(err) == parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND {
		expired, err := r.clients.expired(ctx, r.node, r.days.channels[l.channel], int64(s.seq))
		if err == nil && !expired {
			r.Wrongf("node %d does not find %s, which is entry %d and has not expired", r.node, l.id, s.seq)
		}
		return err
	}
	if err != nil {
		return err
	}
	r.Add("messages read meanwhile", 1)
	r.take(fmt.Sprintf("node %d, a message", r.node), res.GetMessage(), began)
	return nil
}

// take records a message that was read, and checks that it is not too old.
func (r *reader) take(by string, m *parley.Message, began time.Time) {
	c := r.copyOf(by, m)
	if c.line == noLine {
		return
	}
	if s, ok := r.known(c.line, began); ok && c.changed < s.changed {
		r.Wrongf("%s: %s is as of entry %d, and %d was acknowledged %.1f s before", by, m.GetClientMsgId(), c.changed, s.changed,
			began.Sub(s.at).Seconds())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies = append(r.copies, c)
}

// headBefore returns the last entry of a channel that was acknowledged before a time, as far as the
// states of the lines tell.
func (j *journal) headBefore(channel int, at time.Time) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	log := j.logs[channel]
	for seq := len(log) - 1; seq > 0; seq-- {
		if e := log[seq]; e.line != noLine {
			if s := &j.states[e.line]; s.at.Before(at) {
				return int64(seq)
			}
		}
	}
	return 0
}
