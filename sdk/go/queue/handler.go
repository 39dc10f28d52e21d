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

// The server's bounds for what a nack says.
const (
	maxReason = 1024
	maxDelay  = 366 * 24 * time.Hour
)

var failureCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Handler does a delivery's work. Nil acknowledges it; an error, or a panic, gives it back to be tried again after the topic's
// backoff, or as RetryAfter, DeadLetter and Code say.
//
// ctx carries the values of Run's context and the trace of the producer. It ends when the message is no longer this worker's
// (context.Cause then is parley.ErrLeaseLost by errors.Is): whatever the handler still does, another may do as well.
type Handler func(ctx context.Context, d *Delivery) error

// Middleware wraps a Handler.
type Middleware func(next Handler) Handler

// ErrRelease gives the message back as if it had not been handled, where a handler's error is or wraps it: it does not count as
// tried, and is delivered again at once, here or elsewhere. It is for a worker that is about to stop; else it makes the message go in
// circles.
var ErrRelease = errors.New("parley: message released")

// HandlerError is a handler's error with what is to become of the message. RetryAfter, DeadLetter and Code make it; where several wrap
// one error, what any of them sets counts, and the outermost where two set the same.
type HandlerError struct {
	// Err is why.
	Err error
	// Delay is when to try again; nil leaves it to others and the topic's backoff.
	Delay *time.Duration
	// Code is the application's code of the failure: up to 64 of A-Z a-z 0-9 _ . -. One of the topic's non-retryable codes makes a dead
	// letter at once.
	Code string
	// DeadLetter gives the message up, whatever attempts are left.
	DeadLetter bool
}

// Error gives the text of what it wraps.
func (f *HandlerError) Error() string { return f.Err.Error() }

// Unwrap gives what it wraps.
func (f *HandlerError) Unwrap() error { return f.Err }

// RetryAfter has the message tried again after d, up to 366 days. Of nil it is nil.
func RetryAfter(err error, d time.Duration) error {
	return fail(err, HandlerError{Delay: &d})
}

// DeadLetter makes the message a dead letter. Of nil it is nil.
func DeadLetter(err error) error { return fail(err, HandlerError{DeadLetter: true}) }

// Code gives the failure a code. Of nil it is nil.
func Code(err error, code string) error { return fail(err, HandlerError{Code: code}) }

func fail(err error, f HandlerError) error {
	if err == nil {
		return nil
	}
	f.Err = err
	return &f
}

// panicError is a handler that panicked.
type panicError struct {
	value any
	stack []byte
}

// Error gives what it panicked with.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// call runs the handler. A panic is an error, and so is an error whose text can't be told, such as a nil pointer with a type.
func (h Handler) call(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	if err = h(ctx, d); err != nil {
		_ = nackOf("", err) // all that is asked of it later
	}
	return err
}

// nackOf says what is to become of a delivery whose handler failed. What the server would refuse is left out.
func nackOf(token string, err error) *parleyv1.Nacked {
	if errors.Is(err, ErrRelease) {
		return &parleyv1.Nacked{Token: token, Release: true}
	}
	var all HandlerError // of what wraps it, the outermost first
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
	n := &parleyv1.Nacked{Token: token, Reason: reason, Code: all.Code, DeadLetter: all.DeadLetter}
	if all.Delay != nil && !all.DeadLetter {
		n.Delay = durationpb.New(min(max(*all.Delay, 0), maxDelay))
	}
	return n
}

// reasonOf gives an error's text as it fits.
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

// Logging logs each delivery: level debug where it was handled, warn where the handler failed. Keys and payloads are not logged.
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
