package rpc

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// declaredReasons returns all reasons that the source of package fault declares. It reads the
// source so that none is missed.
func declaredReasons(t *testing.T) []fault.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../fault/fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []fault.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Reason" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, fault.Reason(text))
		return true
	})
	return reasons
}

func TestEveryReasonIsInTheEnum(t *testing.T) {
	t.Parallel()
	declared := declaredReasons(t)
	known := make(map[string]bool)
	for _, r := range declared {
		known[reasonPrefix+string(r)] = true
		n, ok := parleyv1.ErrorReason_value[reasonPrefix+string(r)]
		if !ok {
			t.Errorf("fault.Reason %s has no value in the enum", r)
			continue
		}
		if final := n < 100; final == (&fault.Error{Reason: r}).Retryable() {
			t.Errorf("%s is number %d, but retryable is %v", r, n, !final)
		}
	}
	for name, n := range parleyv1.ErrorReason_value {
		value := parleyv1.ErrorReason(n).Descriptor().Values().ByNumber(protoreflect.EnumNumber(n))
		if options, ok := value.Options().(*descriptorpb.EnumValueOptions); ok && options.GetDeprecated() {
			continue
		}
		if n != 0 && !known[name] {
			t.Errorf("%s has no fault.Reason", name)
		}
	}
	if len(declared) < 20 {
		t.Errorf("only %d reasons were found in the source", len(declared))
	}
}

func TestEveryKindHasACode(t *testing.T) {
	t.Parallel()
	seen := make(map[connect.Code]bool)
	for k := fault.Internal; k <= fault.DeadlineExceeded; k++ {
		code, ok := codes[k]
		if !ok || seen[code] || code == connect.CodeUnknown {
			t.Errorf("kind %d maps to %v", k, code)
		}
		seen[code] = true
	}
}

func details(t *testing.T, err error) (*parleyv1.ErrorDetail, *errdetails.RetryInfo) {
	t.Helper()
	var wire *connect.Error
	if !errors.As(err, &wire) {
		t.Fatalf("%v is no wire error", err)
	}
	var detail *parleyv1.ErrorDetail
	var retry *errdetails.RetryInfo
	for _, d := range wire.Details() {
		m, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *parleyv1.ErrorDetail:
			detail = m
		case *errdetails.RetryInfo:
			retry = m
		}
	}
	return detail, retry
}

func TestToWire(t *testing.T) {
	t.Parallel()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	limited := fault.New(fault.ResourceExhausted, fault.RateLimited, "slow down")
	limited.RetryAfter = 1500 * time.Millisecond
	cut := fault.New(fault.ResourceExhausted, fault.SlowConsumer, "too slow")
	cut.Positions = []fault.Position{{ChannelID: "a", Seq: 7, Epoch: "e"}}
	broken := protovalidate.Validate(&parleyv1.SendMessageRequest{ChannelId: "a", Content: strings.Repeat("x", 65537)})
	const secret = "mongodb://10.0.0.1 is away"
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		code connect.Code
		text string
		want *parleyv1.ErrorDetail
	}{
		{
			name: "wrapped fault", err: fmt.Errorf("send: %w", fault.Wrap(errors.New(secret), fault.Unavailable, fault.StoreUnavailable, "the store is away")),
			code: connect.CodeUnavailable, text: "the store is away",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, Retryable: true},
		},
		{
			name: "field and limit", err: fault.Invalid("content", 5, "content: too long"), code: connect.CodeInvalidArgument,
			text: "content: too long",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, Field: "content", Limit: 5},
		},
		{
			name: "retry after", err: limited, code: connect.CodeResourceExhausted, text: "slow down",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED, Retryable: true},
		},
		{
			name: "positions", err: cut, code: connect.CodeResourceExhausted, text: "too slow",
			want: &parleyv1.ErrorDetail{
				Reason: parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER, Retryable: true,
				Positions: []*parleyv1.LastPosition{{ChannelId: "a", Seq: 7, Epoch: "e"}},
			},
		},
		{
			name: "a rule of the schema", err: connect.NewError(connect.CodeInvalidArgument, broken), code: connect.CodeInvalidArgument,
			text: "content: must be at most 65536 bytes",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, Field: "content", Limit: 65536},
		},
		{
			name: "unknown", err: errors.New(secret), code: connect.CodeInternal, text: "internal error",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INTERNAL, Retryable: true},
		},
		{
			name: "internal fault", err: fault.New(fault.Internal, fault.InternalError, secret), code: connect.CodeInternal, text: "internal error",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INTERNAL, Retryable: true},
		},
		{
			name: "connect's unknown", err: connect.NewError(connect.CodeUnknown, errors.New(secret)), code: connect.CodeInternal, text: "internal error",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INTERNAL, Retryable: true},
		},
		{
			name: "a library's refusal", err: connect.NewError(connect.CodeInvalidArgument, errors.New(secret)), code: connect.CodeInvalidArgument,
			text: "the request is not valid",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_MALFORMED_REQUEST},
		},
		{
			name: "several messages", err: connect.NewError(connect.CodeUnimplemented, errors.New(secret)), code: connect.CodeUnimplemented,
			text: "the request must be exactly one message",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED},
		},
		{
			name: "broken frame", err: fault.New(fault.Internal, fault.MalformedRequest, "a frame is cut"), code: connect.CodeInternal,
			text: "a frame is cut",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_MALFORMED_REQUEST},
		},
		{
			name: "deadline", err: fmt.Errorf("read: %w", context.DeadlineExceeded), code: connect.CodeDeadlineExceeded, text: "the deadline passed",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, Retryable: true},
		},
		{name: "caller gone", ctx: done, err: fmt.Errorf("read: %w", context.Canceled), code: connect.CodeCanceled, text: "context canceled"},
		{
			name: "cancelled inside", err: fmt.Errorf("read: %w", context.Canceled), code: connect.CodeInternal, text: "internal error",
			want: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_INTERNAL, Retryable: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			wire := toWire(telemetry.WithRequestID(ctx, "r-1"), tt.err)
			if wire.Code() != tt.code || wire.Message() != tt.text {
				t.Errorf("is %v %q, want %v %q", wire.Code(), wire.Message(), tt.code, tt.text)
			}
			detail, retry := details(t, wire)
			if tt.want != nil {
				tt.want.RequestId = "r-1"
			}
			ignore := protocmp.IgnoreFields(&parleyv1.ErrorDetail{}, "retry_after")
			if diff := cmp.Diff(tt.want, detail, protocmp.Transform(), ignore); diff != "" {
				t.Error(diff)
			}
			if (tt.err == error(limited)) != (retry != nil) {
				t.Errorf("RetryInfo is %v", retry)
			}
			if retry != nil && (retry.GetRetryDelay().AsDuration() != limited.RetryAfter || detail.GetRetryAfter().AsDuration() != limited.RetryAfter) {
				t.Errorf("waits %v and %v", retry, detail.GetRetryAfter())
			}
		})
	}
}
