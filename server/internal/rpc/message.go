package rpc

import (
	"context"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// messageService implements parley.v1.MessageService. Interceptors have validated the requests,
// except for the items of SendMessages.
type messageService struct {
	cfg       Config
	deps      Deps
	validator protovalidate.Validator
	// presence serves the presence of Subscribe streams.
	presence *presenceService
}

var _ parleyv1connect.MessageServiceHandler = (*messageService)(nil)

// SendMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) SendMessage(
	ctx context.Context, req *parleyv1.SendMessageRequest,
) (*parleyv1.SendMessageResponse, error) {
	r, err := s.deps.Messages.Send(ctx, sendFromWire(req, traceparent(ctx)))
	if err != nil {
		return nil, err
	}
	return sentToWire(&r), nil
}

// SendMessages implements parleyv1connect.MessageServiceHandler.
func (s *messageService) SendMessages(
	ctx context.Context, req *parleyv1.SendMessagesRequest,
) (*parleyv1.SendMessagesResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	items := req.GetMessages()
	results := make([]*parleyv1.SendResult, len(items))
	sends := make([]message.SendRequest, 0, len(items))
	at := make([]int, 0, len(items))
	parent := traceparent(ctx)
	for i, item := range items {
		if err := s.checkSend(p, item); err != nil {
			results[i] = &parleyv1.SendResult{Result: &parleyv1.SendResult_Error{Error: itemError(ctx, itemPath("messages", i), err)}}
			continue
		}
		sends, at = append(sends, sendFromWire(item, parent)), append(at, i)
	}
	for j, out := range s.deps.Messages.SendBatch(ctx, sends) {
		i := at[j]
		if out.Err != nil {
			wire := loggedItemError(ctx, s.deps.Telemetry.Logger, itemPath("messages", i), out.Err)
			results[i] = &parleyv1.SendResult{Result: &parleyv1.SendResult_Error{Error: wire}}
			continue
		}
		results[i] = &parleyv1.SendResult{Result: &parleyv1.SendResult_Sent{Sent: sentToWire(&out.Receipt)}}
	}
	return &parleyv1.SendMessagesResponse{Results: results}, nil
}

// checkSend validates and authorizes an item of SendMessages, as the gate does for a SendMessage.
func (s *messageService) checkSend(p *ident.Principal, item *parleyv1.SendMessageRequest) error {
	if err := checkItem(s.validator, item); err != nil {
		return err
	}
	return api.forRequest(item.ProtoReflect().Descriptor().FullName()).authorize(p, item)
}

// ListMessages implements parleyv1connect.MessageServiceHandler.
func (s *messageService) ListMessages(
	ctx context.Context, req *parleyv1.ListMessagesRequest,
) (*parleyv1.ListMessagesResponse, error) {
	page, err := s.deps.Messages.List(ctx, message.ListQuery{
		ChannelID: req.GetChannelId(), After: req.AfterSeq, Before: req.BeforeSeq, MinSeq: req.GetMinSeq(),
		PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListMessagesResponse{
		Messages: messagesToWire(page.Messages), NextPageToken: page.NextPageToken, HeadSeq: page.Head,
		Epoch: page.Epoch, OldestSeq: page.Oldest,
	}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		info.ResponseHeader().Set(sourceHeader, sourceOf(page.FromCache))
	}
	return resp, nil
}

// sourceHeader is the response header that says where ListMessages read the messages: `cache` or
// `store`. It helps to investigate slow lists.
const sourceHeader = "Parley-Source"

func sourceOf(fromCache bool) string {
	if fromCache {
		return "cache"
	}
	return "store"
}

// GetMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) GetMessage(
	ctx context.Context, req *parleyv1.GetMessageRequest,
) (*parleyv1.GetMessageResponse, error) {
	m, err := s.deps.Messages.Get(ctx, req.GetChannelId(), req.GetMsgId())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetMessageResponse{Message: messageToWire(&m), Epoch: s.deps.Epoch}, nil
}

// EditMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) EditMessage(
	ctx context.Context, req *parleyv1.EditMessageRequest,
) (*parleyv1.EditMessageResponse, error) {
	r, m, err := s.deps.Messages.Edit(ctx, message.EditRequest{
		ChannelID: req.GetChannelId(), MsgID: req.GetMsgId(), Content: req.GetContent(),
		ClientMsgID: req.GetClientMsgId(), Traceparent: traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.EditMessageResponse{
		Message: changedToWire(&m), Seq: r.Seq, MsgTime: timestamppb.New(r.MsgTime), Duplicate: r.Duplicate, Epoch: r.Epoch,
		ClientMsgId: r.ClientMsgID,
	}, nil
}

// changedToWire returns the message of an edit or a recall, or nil if it is zero, because it has
// expired.
func changedToWire(m *message.Message) *parleyv1.ChannelMessage {
	if m.MsgID == "" {
		return nil
	}
	return messageToWire(m)
}

// RecallMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) RecallMessage(
	ctx context.Context, req *parleyv1.RecallMessageRequest,
) (*parleyv1.RecallMessageResponse, error) {
	r, m, err := s.deps.Messages.Recall(ctx, message.RecallRequest{
		ChannelID: req.GetChannelId(), MsgID: req.GetMsgId(), ClientMsgID: req.GetClientMsgId(),
		Traceparent: traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	id := r.ClientMsgID
	if r.Duplicate {
		id = req.GetClientMsgId() // an id generated for a repeat would identify nothing
	}
	return &parleyv1.RecallMessageResponse{
		Message: changedToWire(&m), Seq: r.Seq, MsgTime: timestamppb.New(r.MsgTime), Duplicate: r.Duplicate, Epoch: r.Epoch,
		ClientMsgId: id,
	}, nil
}

// traceparent returns the W3C trace context of the call's span, which is stored with the log's
// entry; empty if the trace is not sampled.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
