package rpc

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	otelcodes "go.opentelemetry.io/otel/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

var someReceipt = message.Receipt{
	MsgID: "m1", Seq: 3, Count: 2, MsgTime: someTime, ClientMsgID: "c1", Epoch: "e1", Duplicate: true,
}

func TestUnaryCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var got any
	who := func(ctx context.Context, v any) {
		got = v
		if p := ident.FromContext(ctx); p == nil || p.Subject != "ada" {
			t.Errorf("principal is %+v", p)
		}
	}
	b.messages.send = func(ctx context.Context, r message.SendRequest) (message.Receipt, error) {
		r.Traceparent = ""
		who(ctx, r)
		return someReceipt, nil
	}
	b.messages.edit = func(ctx context.Context, r message.EditRequest) (message.Receipt, message.Message, error) {
		r.Traceparent = ""
		who(ctx, r)
		m := someEvent(message.KindEdit, "a", 4).Message
		m.Seq, m.Status = 1, message.StatusEdited
		return someReceipt, m, nil
	}
	tombstone := message.Message{
		MsgID: "m1", ChannelID: "a", Seq: 1, Count: 1, FromID: "ada", MsgTime: someTime, Status: message.StatusRecalled, ChangedSeq: 3,
	}
	b.messages.recall = func(ctx context.Context, r message.RecallRequest) (message.Receipt, message.Message, error) {
		r.Traceparent = ""
		who(ctx, r)
		return someReceipt, tombstone, nil
	}
	b.messages.get = func(ctx context.Context, channelID, msgID string) (message.Message, error) {
		who(ctx, channelID+"/"+msgID)
		return someEvent(message.KindSend, "a", 4).Message, nil
	}
	b.messages.list = func(ctx context.Context, q message.ListQuery) (message.Page, error) {
		who(ctx, q)
		return message.Page{
			Oldest:   3,
			Messages: []message.Message{someEvent(message.KindSend, "a", 4).Message}, NextPageToken: "next", Head: 9, Epoch: "e1",
		}, nil
	}
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		ctx := t.Context()
		check := func(name string, resp proto.Message, err error, want proto.Message, wantGot any) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
				t.Errorf("%s answers:\n%s", name, diff)
			}
			if diff := cmp.Diff(wantGot, got); diff != "" {
				t.Errorf("%s passes on:\n%s", name, diff)
			}
		}
		at := timestamppb.New(someTime)
		sent, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{
			ChannelId: "a", Content: "hi", ClientMsgId: "c1", MsgType: "md", Metadata: map[string]string{"k": "v"}, FromId: "auth0|7",
		})
		check("send", sent, err, &parleyv1.SendMessageResponse{
			MsgId: "m1", Seq: 3, Count: 2, MsgTime: at, ClientMsgId: "c1", Epoch: "e1", Duplicate: true,
		}, message.SendRequest{
			ChannelID: "a", Content: "hi", ClientMsgID: "c1", MsgType: "md", Metadata: map[string]string{"k": "v"}, FromID: "auth0|7",
		})
		edited, err := c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "a", MsgId: "m1", Content: "ho", ClientMsgId: "c2"})
		now := wireMessage("a", 4)
		now.Seq, now.Status = 1, parleyv1.MessageStatus_MESSAGE_STATUS_EDITED
		check("edit", edited, err, &parleyv1.EditMessageResponse{Message: now, Seq: 3, MsgTime: at, ClientMsgId: "c1", Duplicate: true, Epoch: "e1"},
			message.EditRequest{ChannelID: "a", MsgID: "m1", Content: "ho", ClientMsgID: "c2"})
		recalled, err := c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "a", MsgId: "m1", ClientMsgId: "c3"})
		check("recall", recalled, err, &parleyv1.RecallMessageResponse{
			Message: &parleyv1.ChannelMessage{
				MsgId: "m1", ChannelId: "a", Seq: 1, Count: 1, FromId: "ada", MsgTime: at,
				Status: parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED, ChangedSeq: 3,
			},
			Seq: 3, MsgTime: at, ClientMsgId: "c3", Duplicate: true, Epoch: "e1",
		}, message.RecallRequest{ChannelID: "a", MsgID: "m1", ClientMsgID: "c3"})
		one, err := c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "a", MsgId: "m4"})
		check("get", one, err, &parleyv1.GetMessageResponse{Message: wireMessage("a", 4), Epoch: "e1"}, "a/m4")
		zero, five := int64(0), int64(5)
		page, err := c.ListMessages(ctx, &parleyv1.ListMessagesRequest{
			ChannelId: "a", AfterSeq: &zero, BeforeSeq: &five, MinSeq: 7, PageSize: 10, PageToken: "t",
		})
		check("list", page, err, &parleyv1.ListMessagesResponse{
			Messages: []*parleyv1.ChannelMessage{wireMessage("a", 4)}, NextPageToken: "next", HeadSeq: 9, Epoch: "e1", OldestSeq: 3,
		}, message.ListQuery{ChannelID: "a", After: &zero, Before: &five, MinSeq: 7, PageSize: 10, PageToken: "t"})
		_, err = c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "a"})
		if diff := cmp.Diff(message.ListQuery{ChannelID: "a"}, got); diff != "" || err != nil {
			t.Errorf("unset positions: %v\n%s", err, diff)
		}
		_, err = c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: longestChannel, PageSize: 1e9})
		if diff := cmp.Diff(message.ListQuery{ChannelID: longestChannel, PageSize: 1000}, got); diff != "" || err != nil {
			t.Errorf("a huge page: %v\n%s", err, diff)
		}
	})
	if lines := b.logged.lines(t); len(lines) > 0 {
		t.Errorf("good calls are logged: %v", lines)
	}
}

// The messages of a SendMessages are validated one by one: the invalid ones are refused, the valid
// ones are passed to the domain.
func TestSendMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.messages.batch = func(_ context.Context, rs []message.SendRequest) []message.SendOutcome {
		outs := make([]message.SendOutcome, len(rs))
		for i, r := range rs {
			switch r.ChannelID {
			case "forbidden":
				outs[i].Err = fault.New(fault.PermissionDenied, fault.CapabilityMissing, "no")
			case "broken":
				outs[i].Err = errors.New("disk of 10.0.0.1 is full")
			case "gone":
				outs[i].Err = fault.New(fault.Unavailable, fault.OutcomeUnknown, "unknown")
			default:
				outs[i].Receipt = message.Receipt{MsgID: r.Content, Seq: int64(i), MsgTime: someTime}
			}
		}
		return outs
	}
	req := &parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{
		{ChannelId: "a", Content: "one"},
		{ChannelId: "a b", Content: "two"},
		{ChannelId: "forbidden", Content: "three"},
		{ChannelId: "a", Content: "fo\x00ur"},
		{ChannelId: "a"},
		{ChannelId: "broken", Content: "six"},
		{ChannelId: "gone", Content: "seven"},
		{ChannelId: "a", Content: "eight", Metadata: map[string]string{"a.b": "x"}},
		{ChannelId: "a", Content: "nine"},
	}}
	want := []string{
		"one", "invalid_argument INVALID_FIELD messages[1].channel_id 0", "permission_denied CAPABILITY_MISSING  0",
		"invalid_argument INVALID_FIELD messages[3].content 0", "invalid_argument INVALID_FIELD messages[4].content 1",
		"internal INTERNAL  0", "unavailable OUTCOME_UNKNOWN  0",
		`invalid_argument INVALID_FIELD messages[7].metadata["a.b"] 0`, "nine",
	}
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		resp, err := c.SendMessages(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range resp.GetResults() {
			if e := r.GetError(); e != nil {
				d := e.GetDetail()
				got = append(got, strings.Join([]string{
					strings.ToLower(strings.TrimPrefix(e.GetCode().String(), "STATUS_CODE_")), strings.TrimPrefix(d.GetReason().String(), reasonPrefix), d.GetField(), strconv.FormatInt(d.GetLimit(), 10),
				}, " "))
				if strings.Contains(e.GetMessage(), "10.0.0.1") || d.GetRequestId() == "" {
					t.Errorf("item error is %v", e)
				}
				continue
			}
			got = append(got, r.GetSent().GetMsgId())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if text, _ := b.logged.oneLine(t)["error"].(string); !strings.Contains(text, "10.0.0.1") {
			t.Errorf("logged %q", text)
		}
		for name, bad := range map[string]*parleyv1.SendMessagesRequest{
			"none": {}, "too many": {Messages: make([]*parleyv1.SendMessageRequest, 501)},
		} {
			for i := range bad.GetMessages() {
				bad.Messages[i] = &parleyv1.SendMessageRequest{ChannelId: "a", Content: "x"}
			}
			_, err := c.SendMessages(t.Context(), bad)
			detail, _ := details(t, err)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || detail.GetField() != "messages" {
				t.Errorf("%s: %v, %v", name, err, detail)
			}
			b.logged.oneLine(t)
		}
	})
}

// Each kind of failure has its code, its detail, and one line in the log.
func TestFailedCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.UnaryTimeout = 50 * time.Millisecond })
	const inside = "dial tcp 10.0.0.1:27017: refused"
	b.messages.send = func(ctx context.Context, r message.SendRequest) (message.Receipt, error) {
		switch r.Content {
		case "panic":
			panic(inside)
		case "slow":
			<-ctx.Done()
			return message.Receipt{}, ctx.Err()
		case "fault":
			return message.Receipt{}, fault.Wrap(errors.New(inside), fault.Unavailable, fault.StoreUnavailable, "away")
		default:
			return message.Receipt{}, errors.New(inside)
		}
	}
	type row struct {
		name   string
		req    *parleyv1.SendMessageRequest
		code   connect.Code
		reason parleyv1.ErrorReason
		field  string
		limit  int64
		logged string
	}
	ok := func(content string) *parleyv1.SendMessageRequest {
		return &parleyv1.SendMessageRequest{ChannelId: "a", Content: content}
	}
	const invalid = parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD
	rows := []row{
		{"panic", ok("panic"), connect.CodeInternal, parleyv1.ErrorReason_ERROR_REASON_INTERNAL, "", 0, inside},
		{"unknown error", ok("x"), connect.CodeInternal, parleyv1.ErrorReason_ERROR_REASON_INTERNAL, "", 0, inside},
		{"fault with a cause", ok("fault"), connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "", 0, inside},
		{"slow", ok("slow"), connect.CodeDeadlineExceeded, parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, "", 0, "deadline"},
		{"NUL", ok("a\x00b"), connect.CodeInvalidArgument, invalid, "content", 0, "NUL"},
		{
			"NUL in a map", &parleyv1.SendMessageRequest{ChannelId: "a", Content: "x", Metadata: map[string]string{"k": "\x00"}},
			connect.CodeInvalidArgument, invalid, `metadata["k"]`, 0, "NUL",
		},
		{"empty", ok(""), connect.CodeInvalidArgument, invalid, "content", 1, "content"},
		{"too long", ok(strings.Repeat("x", 65537)), connect.CodeInvalidArgument, invalid, "content", 65536, "content"},
		{
			"larger than is read", ok(strings.Repeat("x", 600<<10)), connect.CodeResourceExhausted,
			parleyv1.ErrorReason_ERROR_REASON_TOO_LARGE, "", 512 << 10, "",
		},
	}
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		for _, row := range rows {
			_, err := c.SendMessage(t.Context(), row.req)
			if connect.CodeOf(err) != row.code || strings.Contains(err.Error(), "10.0.0.1") {
				t.Errorf("%s: %v", row.name, err)
				continue
			}
			detail, _ := details(t, err)
			if detail.GetReason() != row.reason || detail.GetField() != row.field || detail.GetLimit() != row.limit {
				t.Errorf("%s: detail is %v", row.name, detail)
			}
			line := b.logged.oneLine(t)
			if text, _ := line["error"].(string); !strings.Contains(text, row.logged) {
				t.Errorf("%s: logged %v", row.name, line)
			}
			if line["subject"] != "ada" || (detail != nil && line["request_id"] != detail.GetRequestId()) || line["request_id"] == "" {
				t.Errorf("%s: the line names %v, the detail %v", row.name, line, detail.GetRequestId())
			}
			// The span must end as that of a failed call. So the panic must be recovered inside of the
			// interceptor for traces.
			spans := b.spans.GetSpans()
			if last := spans[max(len(spans), 1)-1]; row.name == "panic" && last.Status.Code != otelcodes.Error {
				t.Errorf("%s: the span's status is %v", row.name, last.Status)
			}
			if stack, _ := line["stack"].(string); (row.name == "panic") != strings.Contains(stack, "message_test.go") {
				t.Errorf("%s: the stack is %q", row.name, stack)
			}
		}
	})
}

func TestTraceIsContinued(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var parent string
	b.messages.send = func(_ context.Context, r message.SendRequest) (message.Receipt, error) {
		parent = r.Traceparent
		return message.Receipt{}, nil
	}
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		b.spans.Reset()
		ctx, call := connect.NewClientContext(t.Context())
		call.RequestHeader().Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		if _, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "a", Content: "x"}); err != nil {
			t.Fatal(err)
		}
		spans := b.spans.GetSpans()
		if len(spans) != 1 || spans[0].Parent.SpanID().String() != "b7ad6b7169203331" ||
			parent != "00-0af7651916cd43dd8448eb211c80319c-"+spans[0].SpanContext.SpanID().String()+"-01" {
			t.Errorf("entry carries %q, spans are %v", parent, spans)
		}
	})
}
