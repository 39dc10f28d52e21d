package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The server's limits for the fields of a nack.
const (
	maxReason = 1024
	maxDelay  = 366 * 24 * time.Hour
)

var failureCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Handler handles one delivery. A nil error acknowledges it. An error or a panic nacks it: the
// message is retried after the group's backoff, or according to RetryAfter, DeadLetter and Code.
//
// ctx carries the values of Run's context and the trace of the producer. It does not end with the
// worker's stream. It ends at the handler timeout, at the stop timeout of a stopping worker, and
// when the delivery is lost. In the last case errors.Is(context.Cause(ctx), parley.ErrDeliveryLost)
// holds, and another worker may handle the same message.
//
// A handler that returns an error after the handler timeout gets the code CodeTimeout. One that
// returns an error after the stop timeout has its message released.
type Handler func(ctx context.Context, d *Delivery) error

// The failure codes that a Worker sets itself.
const (
	// CodeTimeout is the code of a handler that failed after its timeout.
	CodeTimeout = "timeout"
	// CodeDecode is the code of a message that a handler of Handle could not decode.
	CodeDecode = "decode"
)

// Middleware wraps a Handler.
type Middleware func(next Handler) Handler

// ErrRelease releases the message if a handler returns it or an error that wraps it. The delivery
// does not count as an attempt, and the message is delivered again at once, to this or another
// worker. Use it only in a worker that is about to stop; otherwise the message is delivered again
// and again.
var ErrRelease = errors.New("parley: message released")

// HandlerError is a handler's error that sets what happens to the message. RetryAfter, DeadLetter
// and Code create it. If several of them wrap one error, all their settings apply. If two of them
// set the same field, the outermost one applies.
type HandlerError struct {
	// Err is the cause.
	Err error
	// Delay is the time until the next attempt. nil means the Delay of a wrapped HandlerError, or
	// else the group's backoff.
	Delay *time.Duration
	// Code is the application's failure code: up to 64 characters of A-Z a-z 0-9 _ . -. An invalid
	// code is ignored, and an empty one means none. With one of the group's non-retryable codes the
	// message becomes a dead letter at once.
	Code string
	// DeadLetter makes the message a dead letter, regardless of the attempts left.
	DeadLetter bool
}

// Error returns the text of the cause.
func (f *HandlerError) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *HandlerError) Unwrap() error { return f.Err }

// RetryAfter returns an error that schedules the next attempt after d, at most 366 days. It returns
// nil if err is nil.
func RetryAfter(err error, d time.Duration) error {
	return fail(err, HandlerError{Delay: &d})
}

// DeadLetter returns an error that makes the message a dead letter. It returns nil if err is nil.
func DeadLetter(err error) error { return fail(err, HandlerError{DeadLetter: true}) }

// Code returns an error with a failure code. It returns nil if err is nil.
func Code(err error, code string) error { return fail(err, HandlerError{Code: code}) }

func fail(err error, f HandlerError) error {
	if err == nil {
		return nil
	}
	f.Err = err
	return &f
}

// panicError is the error of a handler that panicked.
type panicError struct {
	value any
	stack []byte
}

// Error returns the value of the panic.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// call runs the handler. It returns an error for a panic. It also returns an error if the text of
// the handler's error cannot be read, for example of a typed nil pointer.
func (h Handler) call(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	if err = h(ctx, d); err != nil {
		_ = nackOf("", err) // if err.Error panics, it does so here, where it is recovered
	}
	return err
}

// release returns the nack that releases a delivery, which does not count as an attempt.
func release(token string) *parleyv1.NackItem {
	return &parleyv1.NackItem{Token: token, Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}}
}

// nackOf returns the nack of a delivery whose handler returned err. It omits or truncates values
// that the server would refuse.
func nackOf(token string, err error) *parleyv1.NackItem {
	if errors.Is(err, ErrRelease) {
		return release(token)
	}
	var all HandlerError // of all HandlerErrors that err wraps, the outermost first
	reason := reasonOf(err)
	for f := (*HandlerError)(nil); errors.As(err, &f); err = f.Err {
		if all.Delay == nil {
			all.Delay = f.Delay
		}
		if all.Code == "" && failureCode.MatchString(f.Code) {
			all.Code = f.Code
		}
		all.DeadLetter = all.DeadLetter || f.DeadLetter
	}
	n := &parleyv1.NackItem{Token: token, Reason: reason, Code: all.Code}
	if all.DeadLetter {
		n.Outcome = &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}
		return n
	}
	retry := &parleyv1.NackRetry{}
	if all.Delay != nil {
		retry.Delay = durationpb.New(min(max(*all.Delay, 0), maxDelay))
	}
	n.Outcome = &parleyv1.NackItem_Retry{Retry: retry}
	return n
}

// reasonOf returns an error's text as valid UTF-8, cut to the maximum length of a nack's reason.
func reasonOf(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// Logging returns a middleware that logs each delivery: at level debug if it was handled, at level
// warn if the handler failed. Keys and payloads are not logged.
func Logging(log *slog.Logger) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, d *Delivery) error {
			began := time.Now()
			err := next.call(ctx, d)
			attrs := []any{
				"topic", d.Topic, "group", d.Group, "message_id", d.MessageID, "attempt", d.Attempt, "took", time.Since(began),
			}
			if err != nil {
				log.WarnContext(ctx, "delivery failed", append(attrs, "error", err)...)
			} else {
				log.DebugContext(ctx, "delivery handled", attrs...)
			}
			return err
		}
	}
}
