package parleytest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// handler implements MessageService.
type handler struct {
	parleyv1connect.UnimplementedMessageServiceHandler

	s *Server
}

// interceptor returns the interceptor that adds the token to the handler's context.
func (s *Server) interceptor() connect.Interceptor { return tokenInterceptor{} }

type tokenInterceptor struct{}

func withToken(ctx context.Context, header http.Header) context.Context {
	return context.WithValue(ctx, tokenKey{}, strings.TrimPrefix(header.Get("Authorization"), "Bearer "))
}

// WrapUnary implements connect.Interceptor.
func (tokenInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	next = unsupported(next)
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		return next(withToken(ctx, req.Header()), req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (tokenInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (tokenInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(withToken(ctx, conn.RequestHeader()), conn)
	}
}

// do executes a unary call, with the fault that the test set.
func do[Req proto.Message, Res any](ctx context.Context, s *Server, method string, req Req, work func() (Res, error)) (Res, error) {
	var none Res
	fault, err := s.begin(method, tokenOf(ctx), req)
	if err != nil {
		return none, err
	}
	if fault != nil && !fault.Applied {
		return none, fault.happen()
	}
	s.mu.Lock()
	res := none
	if err = s.checkLocked(ctx, method, req); err == nil {
		res, err = work()
	}
	s.mu.Unlock()
	if fault != nil {
		return none, fault.happen()
	}
	return res, err
}

func (f *Fault) happen() error {
	if f.Drop {
		panic(http.ErrAbortHandler)
	}
	return f.Err
}

// SendMessage implements the service.
func (h handler) SendMessage(ctx context.Context, req *parleyv1.SendMessageRequest) (*parleyv1.SendMessageResponse, error) {
	return do(ctx, h.s, "SendMessage", req, func() (*parleyv1.SendMessageResponse, error) {
		return h.s.sendAsLocked(ctx, req, false)
	})
}

// SendMessages implements the service. A fault can apply to single items: the fault function is
// called with `SendMessages/<client_msg_id>` for each, and the fault's error becomes the item's. If
// that error is retryable, the channel's later items are aborted.
func (h handler) SendMessages(ctx context.Context, req *parleyv1.SendMessagesRequest) (*parleyv1.SendMessagesResponse, error) {
	return do(ctx, h.s, "SendMessages", req, func() (*parleyv1.SendMessagesResponse, error) {
		res := new(parleyv1.SendMessagesResponse)
		stopped := make(map[string]bool)
		for i, item := range req.GetMessages() {
			result := h.item(ctx, item, stopped)
			prefixField(result.GetError(), fmt.Sprintf("messages[%d]", i))
			res.Results = append(res.Results, result)
		}
		return res, nil
	})
}

func (h handler) item(ctx context.Context, item *parleyv1.SendMessageRequest, stopped map[string]bool) *parleyv1.SendResult {
	if stopped[item.GetChannelId()] {
		return itemResult(Error(connect.CodeAborted, parleyv1.ErrorReason_ERROR_REASON_BATCH_ABORTED))
	}
	if h.s.fault != nil {
		if fault := h.s.fault("SendMessages/"+item.GetClientMsgId(), item); fault != nil {
			if fault.Applied {
				_, _ = h.s.sendAsLocked(ctx, item, false)
			}
			result := itemResult(fault.Err)
			stopped[item.GetChannelId()] = result.GetError().GetDetail().GetRetryable()
			return result
		}
	}
	err := h.s.checkLocked(ctx, "SendMessage", item)
	if err != nil {
		return itemResult(err)
	}
	sent, err := h.s.sendAsLocked(ctx, item, false)
	if err != nil {
		return itemResult(err)
	}
	return &parleyv1.SendResult{Result: &parleyv1.SendResult_Sent{Sent: sent}}
}

func itemResult(err error) *parleyv1.SendResult {
	return &parleyv1.SendResult{Result: &parleyv1.SendResult_Error{Error: itemError(err)}}
}

// GetMessage implements the service.
func (h handler) GetMessage(ctx context.Context, req *parleyv1.GetMessageRequest) (*parleyv1.GetMessageResponse, error) {
	return do(ctx, h.s, "GetMessage", req, func() (*parleyv1.GetMessageResponse, error) {
		l, err := h.s.usableLocked(ctx, req.GetChannelId())
		if err != nil {
			return nil, err
		}
		m := l.messages[req.GetMsgId()]
		if m == nil || m.GetSeq() < l.oldest {
			return nil, errNoMessage()
		}
		return &parleyv1.GetMessageResponse{Message: proto.CloneOf(m), Epoch: l.epoch}, nil
	})
}

// EditMessage implements the service.
func (h handler) EditMessage(ctx context.Context, req *parleyv1.EditMessageRequest) (*parleyv1.EditMessageResponse, error) {
	return do(ctx, h.s, "EditMessage", req, func() (*parleyv1.EditMessageResponse, error) {
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		return h.s.editLocked(h.s.userLocked(ctx), req)
	})
}

// RecallMessage implements the service.
func (h handler) RecallMessage(ctx context.Context, req *parleyv1.RecallMessageRequest) (*parleyv1.RecallMessageResponse, error) {
	return do(ctx, h.s, "RecallMessage", req, func() (*parleyv1.RecallMessageResponse, error) {
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		return h.s.recallLocked(h.s.userLocked(ctx), h.s.canLocked(ctx, "moderate"), req)
	})
}

// ListMessages implements the service. A page token contains the seq at which the next page begins.
func (h handler) ListMessages(ctx context.Context, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	return do(ctx, h.s, "ListMessages", req, func() (*parleyv1.ListMessagesResponse, error) { return h.s.listLocked(ctx, req) })
}

func (s *shared) listLocked(ctx context.Context, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	l, err := s.usableLocked(ctx, req.GetChannelId())
	if err != nil {
		return nil, err
	}
	query := fmt.Sprint("messages ", req.GetChannelId(), value(req.AfterSeq), value(req.BeforeSeq))
	last, err := s.openLocked(ctx, req.GetPageToken(), query, l.epoch)
	switch {
	case err != nil:
		return nil, err
	case req.GetMinSeq() > l.head():
		return nil, outOfRange("min_seq", l.head())
	case req.GetAfterSeq() > l.head():
		return nil, outOfRange("after_seq", l.head())
	case req.GetAfterSeq() != 0 && req.GetAfterSeq() < l.oldestSeq()-1:
		return nil, errorAt(connect.CodeOutOfRange, parleyv1.ErrorReason_ERROR_REASON_HISTORY_GONE, "after_seq", l.oldestSeq())
	}
	res := l.page(req, last)
	if res.GetNextPageToken() != "" {
		res.NextPageToken = s.sealLocked(ctx, query, l.epoch, res.GetNextPageToken())
	}
	return res, nil
}

// value returns an optional number as text for a query; an unset number is "-".
func value(n *int64) string {
	if n == nil {
		return " -"
	}
	return fmt.Sprint(" ", *n)
}

func outOfRange(field string, limit int64) error {
	return errorAt(connect.CodeOutOfRange, parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE, field, limit)
}

func errNoMessage() error {
	return errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, "msg_id", 0)
}

// page returns the page that begins at the seq in at, or the first page if at is empty. The page's
// token is the plain seq at which the next page begins; the caller must encode it with sealLocked.
func (l *log) page(req *parleyv1.ListMessagesRequest, at string) *parleyv1.ListMessagesResponse {
	res := &parleyv1.ListMessagesResponse{HeadSeq: l.head(), Epoch: l.epoch, OldestSeq: l.oldestSeq()}
	size := min(int(req.GetPageSize()), 1000)
	if size == 0 {
		size = 50
	}
	first, last := max(req.GetAfterSeq()+1, l.oldest), l.head()
	if req.BeforeSeq != nil {
		last = min(last, req.GetBeforeSeq()-1)
	}
	ascending := req.AfterSeq != nil
	seq, step := last, int64(-1)
	if ascending {
		seq, step = first, 1
	}
	if at != "" {
		seq, _ = strconv.ParseInt(at, 10, 64)
	}
	for ; seq >= first && seq <= last; seq += step {
		e := l.entries[seq-1]
		if e.kind != "sent" {
			continue
		}
		if len(res.GetMessages()) == size {
			res.NextPageToken = strconv.FormatInt(seq, 10)
			break
		}
		res.Messages = append(res.Messages, proto.CloneOf(l.messages[e.msgID]))
	}
	return res
}
