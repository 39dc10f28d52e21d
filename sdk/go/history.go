package parley

import (
	"context"
	"errors"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// HistoryOption selects the messages that History yields.
type HistoryOption interface{ applyToHistory(q *historyQuery) }

type historyFunc func(q *historyQuery)

func (f historyFunc) applyToHistory(q *historyQuery) { f(q) }

type historyQuery struct {
	after, before *int64
	pageSize      int32
	limit         int
}

// AfterSeq selects the messages after seq, oldest first. 0 starts with the oldest message.
func AfterSeq(seq int64) HistoryOption {
	return historyFunc(func(q *historyQuery) { q.after = &seq })
}

// BeforeSeq selects the messages before seq, newest first unless AfterSeq is given too.
func BeforeSeq(seq int64) HistoryOption {
	return historyFunc(func(q *historyQuery) { q.before = &seq })
}

// PageSizeOption is a HistoryOption and an OnlineOption.
type PageSizeOption int32

func (n PageSizeOption) applyToHistory(q *historyQuery) { q.pageSize = int32(n) }

func (n PageSizeOption) applyToOnline(pageSize *int32) { *pageSize = int32(n) }

// PageSize sets how many messages or users one request asks for, at most 1,000. 0 or less means the
// default: for History the value of Limit, at most 1,000, else the server's default.
func PageSize(n int) PageSizeOption { return PageSizeOption(min(max(n, 0), 1000)) }

// Limit ends the iteration after n messages. 0 or less means no limit.
func Limit(n int) HistoryOption {
	return historyFunc(func(q *historyQuery) { q.limit = n })
}

// History iterates over a channel's messages in their current state. A recalled message is a
// tombstone without content. Without options it yields the newest message first. The list is at
// least as new as every answer and event about the channel that this client has received.
//
// Pages are loaded as the loop needs them. Each page is a call, retried until ctx or the call's
// deadline ends. If a call fails, the iteration ends with its error. ErrResync means that the log's
// epoch changed between two pages; list again from the start.
func (c *Client) History(ctx context.Context, channelID string, opts ...HistoryOption) iter.Seq2[*Message, error] {
	var q historyQuery
	for _, opt := range opts {
		opt.applyToHistory(&q)
	}
	return func(yield func(*Message, error) bool) {
		if err := checkText("channel_id", channelID); err != nil {
			yield(nil, err)
			return
		}
		req := &parleyv1.ListMessagesRequest{
			ChannelId: channelID, AfterSeq: q.after, BeforeSeq: q.before, PageSize: q.pageSize,
			MinSeq: c.heads.get(channelID).Seq,
		}
		if q.limit > 0 && q.pageSize == 0 {
			req.PageSize = int32(min(q.limit, 1000))
		}
		for n := 0; ; {
			page, err := c.page(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range page.GetMessages() {
				if !yield(m, nil) {
					return
				}
				if n++; n == q.limit {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				return
			}
			req.PageToken = page.GetNextPageToken()
		}
	}
}

// page loads one page. If the log ends before min_seq, an older backup of it may have been
// restored. The page is then loaded again without min_seq, and is returned if the log's epoch has
// changed.
func (c *Client) page(ctx context.Context, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	res, err := c.list(ctx, req)
	if errors.Is(err, ErrPositionOutOfRange) && req.GetMinSeq() > 0 && req.GetPageToken() == "" {
		known, minSeq := c.heads.get(req.GetChannelId()), req.GetMinSeq()
		req.MinSeq = 0
		again, againErr := c.list(ctx, req)
		if againErr == nil && again.GetEpoch() != known.Epoch {
			return again, nil
		}
		req.MinSeq = minSeq
	}
	return res, err
}

func (c *Client) list(ctx context.Context, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	var res *parleyv1.ListMessagesResponse
	err := c.do(ctx, "ListMessages", func(ctx context.Context, n *endpoint) (err error) {
		res, err = listMessages(ctx, n, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.observe(req.GetChannelId(), res.GetEpoch(), res.GetHeadSeq())
	return res, nil
}
