package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parleyhq/parley/server/internal/fault"
)

// reserved is what the names of topics that are ours begin with.
const reserved = "__"

// reservedHeaders are what names of headers must not begin with: they are set by us, or trusted by receivers.
var reservedHeaders = []string{"webhook-", "parley-"}

// checkTopicName refuses a name that a producer or consumer can't mean.
func checkTopicName(name string) error {
	if strings.HasPrefix(name, reserved) {
		return fault.Invalid("topic", 0, "topic: names that begin with %s are reserved", reserved)
	}
	return nil
}

// validName reports whether a name is 1 to 64 of A-Z a-z 0-9 _ -. Names become parts of keys, whose braces hold a slot
// together, so this is checked where they are made, whatever was checked before.
func validName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// text reports whether s is UTF-8 without NUL.
func text(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// check refuses a draft for what the proto's rules can't say.
func (d *Draft) check(now time.Time) error {
	if !text(d.Key) {
		return fault.Invalid("key", 0, "key: must be UTF-8 without NUL")
	}
	for name, value := range d.Headers {
		for _, prefix := range reservedHeaders {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				return fault.Invalid(headerPath(name), 0, "headers: names that begin with %s are reserved", prefix)
			}
		}
		// A value with a line break would become another header where headers are forwarded over HTTP.
		if !text(value) || strings.ContainsAny(value, "\r\n") {
			return fault.Invalid(headerPath(name), 0, "headers: values must be UTF-8 without CR, LF and NUL")
		}
	}
	return checkDue(d.Delay, d.At, now)
}

// headerPath names a header as the transport names entries of maps.
func headerPath(name string) string { return "headers[" + strconv.Quote(name) + "]" }

// checkDue bounds how far ahead a message may be scheduled. A time is compared with this node's clock, for Redis' is not at
// hand; beyond a year their difference does not matter.
func checkDue(delay time.Duration, at, now time.Time) error {
	switch {
	case delay < 0 || delay > MaxDelay:
		return fault.Invalid("delay", int64(MaxDelay/time.Second), "delay: must be from 0 to 366 days")
	case !at.IsZero() && at.Sub(now) > MaxDelay:
		return fault.Invalid("due_time", int64(MaxDelay/time.Second), "due_time: must be at most 366 days ahead")
	}
	return nil
}

// unread is the fault of a store that does not answer a read.
func unread(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	}
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
}

// undone is the fault of a store that does not answer a write. It may have been done, or be done later.
func undone(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	switch {
	case errors.Is(err, ErrNoTopic):
		return noTopic()
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; it may have been done")
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether it was done: try again")
	}
	return err
}
