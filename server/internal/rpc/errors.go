package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// codes maps the kinds of faults to connect's codes.
var codes = map[fault.Kind]connect.Code{
	fault.Internal:           connect.CodeInternal,
	fault.InvalidArgument:    connect.CodeInvalidArgument,
	fault.NotFound:           connect.CodeNotFound,
	fault.AlreadyExists:      connect.CodeAlreadyExists,
	fault.PermissionDenied:   connect.CodePermissionDenied,
	fault.Unauthenticated:    connect.CodeUnauthenticated,
	fault.ResourceExhausted:  connect.CodeResourceExhausted,
	fault.FailedPrecondition: connect.CodeFailedPrecondition,
	fault.Aborted:            connect.CodeAborted,
	fault.OutOfRange:         connect.CodeOutOfRange,
	fault.Unimplemented:      connect.CodeUnimplemented,
	fault.Unavailable:        connect.CodeUnavailable,
	fault.DeadlineExceeded:   connect.CodeDeadlineExceeded,
}

const reasonPrefix = "ERROR_REASON_"

// reasonOf returns a reason's number in the schema; ERROR_REASON_INTERNAL if it has none.
func reasonOf(r fault.Reason) parleyv1.ErrorReason {
	if n, ok := parleyv1.ErrorReason_value[reasonPrefix+string(r)]; ok && n != 0 {
		return parleyv1.ErrorReason(n)
	}
	return parleyv1.ErrorReason_ERROR_REASON_INTERNAL
}

// internalFault returns the fault that clients get for an internal error. The log has the details
// under the request id.
func internalFault() *fault.Error {
	return fault.New(fault.Internal, fault.InternalError, "internal error")
}

// toWire converts any error to the error that the client gets. Every error has an ErrorDetail,
// except `canceled`, which no client reads. A fault keeps its text, unless its kind is Internal and
// its reason is not MALFORMED_REQUEST. Broken rules of the schema, a passed deadline and some
// errors of connect have texts of their own. Any other error is reported as internal, without its
// text.
func toWire(ctx context.Context, err error) *connect.Error {
	f, violations := faultOf(ctx, err)
	if f == nil {
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	}
	wire := connect.NewError(codes[f.Kind], errors.New(f.Msg))
	addDetail(wire, detailOf(ctx, f))
	if violations != nil {
		addDetail(wire, violations)
	}
	if f.RetryAfter > 0 {
		addDetail(wire, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	return wire
}

func addDetail(wire *connect.Error, m proto.Message) {
	if d, err := connect.NewErrorDetail(m); err == nil { // never fails for generated messages
		wire.AddDetail(d)
	}
}

// faultOf converts an error to a fault. It also returns the violations if the error is about the
// schema's rules. It returns nil if the caller has canceled the call.
func faultOf(ctx context.Context, err error) (*fault.Error, proto.Message) {
	if f, ok := fault.As(context.Cause(ctx)); ok && ctx.Err() != nil {
		return f, nil // the server ended the stream, see watchToken; err may be a consequence
	}
	if f, ok := fault.As(err); ok {
		if f.Kind == fault.Internal && f.Reason != fault.MalformedRequest {
			return internalFault(), nil
		}
		return f, nil
	}
	if invalid, ok := errors.AsType[*protovalidate.ValidationError](err); ok && len(invalid.Violations) > 0 {
		explainPatterns(invalid)
		return violationFault(invalid), invalid.ToProto()
	}
	if callerGone(ctx, err) {
		return nil, nil
	}
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed"), nil
	}
	if wire, ok := errors.AsType[*connect.Error](err); ok {
		return libraryFault(wire), nil
	}
	return internalFault(), nil
}

// callerGone reports whether err is the result of the caller's cancellation of the call. The
// cancellation of something inside the server does not count.
func callerGone(ctx context.Context, err error) bool {
	return connect.CodeOf(err) == connect.CodeCanceled || errors.Is(err, context.Canceled) && ctx.Err() != nil
}

// libraryFault returns the fault of an error that a library raised. Config.explain has replaced
// connect's errors about unreadable requests before, except for a stream with no request or with
// several. All others come from reflection.
func libraryFault(wire *connect.Error) *fault.Error {
	switch wire.Code() {
	case connect.CodeInvalidArgument:
		return malformed("the request is not valid")
	case connect.CodeUnimplemented:
		return notOneMessage()
	default:
		return internalFault()
	}
}

// violationFault returns a fault that names the first field that breaks its rule, and the rule's
// limit if it is a number or a duration.
func violationFault(e *protovalidate.ValidationError) *fault.Error {
	v := e.Violations[0]
	field := protovalidate.FieldPathString(v.Proto.GetField())
	return fault.Invalid(field, limitOf(v), "%s", v.String())
}

// limitOf returns the bound of the rule that v breaks: an integer, or a duration in whole seconds;
// 0 if the rule has neither.
func limitOf(v *protovalidate.Violation) int64 {
	limit := boundOf(v)
	if _, ok := v.RuleValue.Interface().(protoreflect.Message); ok {
		return limit / int64(time.Second)
	}
	return limit
}

// boundOf returns the bound of the rule that v breaks; a duration in nanoseconds. For a rule with
// two bounds the violation always names the lower one, so boundOf gets the upper one from the
// schema.
func boundOf(v *protovalidate.Violation) int64 {
	low := number(v.RuleValue)
	if v.RuleDescriptor == nil || v.RuleDescriptor.Name() != "gte" || number(v.FieldValue) < low {
		return low
	}
	rules, err := protovalidate.ResolveFieldRules(v.FieldDescriptor)
	if err != nil {
		return low
	}
	all := rules.ProtoReflect()
	kind := all.WhichOneof(all.Descriptor().Oneofs().ByName("type"))
	if kind == nil {
		return low
	}
	bounds := all.Get(kind).Message()
	return number(bounds.Get(bounds.Descriptor().Fields().ByName("lte")))
}

// number returns an integer, or a duration in nanoseconds; 0 for anything else.
func number(v protoreflect.Value) int64 {
	switch n := v.Interface().(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case uint32:
		return int64(n)
	case uint64:
		return int64(n) //nolint:gosec // limits are small
	case protoreflect.Message:
		if d, ok := n.Interface().(*durationpb.Duration); ok {
			return int64(d.AsDuration())
		}
		return 0
	default:
		return 0
	}
}

func detailOf(ctx context.Context, f *fault.Error) *parleyv1.ErrorDetail {
	d := &parleyv1.ErrorDetail{
		Reason: reasonOf(f.Reason), Retryable: f.Retryable(), Field: f.Field, Limit: f.Limit,
		RequestId: telemetry.RequestID(ctx), UserIds: f.Users,
	}
	if f.RetryAfter > 0 {
		d.RetryAfter = durationpb.New(f.RetryAfter)
	}
	if k := f.Kick; k != nil {
		d.Kick = &parleyv1.Kick{
			Cause: parleyv1.KickCause(k.Cause), Platform: parleyv1.Platform(k.Platform), DeviceId: k.Device, ConnectionId: k.Connection,
			Reason: k.Reason,
		}
	}
	for _, p := range f.Positions {
		d.Positions = append(d.Positions, &parleyv1.LastPosition{ChannelId: p.ChannelID, Seq: p.Seq, Epoch: p.Epoch})
	}
	return d
}

// itemError returns the error of one item of a batch, as its result in the response. path converts
// a field of the item to its path in the request.
func itemError(ctx context.Context, path func(field string) string, err error) *parleyv1.ItemError {
	f, _ := faultOf(ctx, err)
	if f == nil {
		return &parleyv1.ItemError{Code: statusCode(connect.CodeCanceled), Message: context.Canceled.Error()}
	}
	d := detailOf(ctx, f)
	if d.GetField() != "" {
		d.Field = path(d.GetField())
	}
	return &parleyv1.ItemError{Code: statusCode(codes[f.Kind]), Message: f.Msg, Detail: d}
}

// statusCode converts a code of connect to the schema's. Both have gRPC's numbers.
func statusCode(c connect.Code) parleyv1.StatusCode {
	return parleyv1.StatusCode(c) //nolint:gosec // 1 to 16
}

// itemPath returns the function that converts a field of a list's item to its path in the request:
// list[index].field.
func itemPath(list string, index int) func(field string) string {
	return func(field string) string { return fmt.Sprintf("%s[%d].%s", list, index, field) }
}

// indexed returns the path of an item of a list: list[index].
func indexed(list string, index int) string { return fmt.Sprintf("%s[%d]", list, index) }

// loggedItemError returns itemError's result. It also logs an internal error: the client does not
// get its text, and the call itself succeeds and is not logged.
func loggedItemError(
	ctx context.Context, log *slog.Logger, path func(field string) string, err error,
) *parleyv1.ItemError {
	wire := itemError(ctx, path, err)
	if wire.GetDetail().GetReason() == parleyv1.ErrorReason_ERROR_REASON_INTERNAL {
		log.ErrorContext(ctx, "item of a batch failed", attrError(err))
	}
	return wire
}
