package produce

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// reserved is the prefix of the names of the server's own topics.
const reserved = "__"

// reservedHeaders are prefixes of header names that the server sets, or that receivers trust.
var reservedHeaders = []string{"webhook-", "parley-"}

// limitDays is qlog.MaxDelay as errors state it.
const limitDays = int64(qlog.MaxDelay / (24 * time.Hour))

func reservedTopic() error {
	return fault.Invalid("topic", 0, "topic: names that begin with %s are reserved", reserved)
}

// text reports whether s is UTF-8 without NUL.
func text(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// check refuses a message for what the rules of the proto cannot express. It depends on nothing but
// the message: a repeat must have the same result. So the store judges a time that is too far
// ahead.
func (m *Message) check() error {
	switch {
	case !text(m.Key):
		return fault.Invalid("key", 0, "key: must be UTF-8 without NUL")
	case m.Delay < 0 || m.Delay > qlog.MaxDelay:
		return tooFar("delay")
	case m.Unique != nil && m.Unique.Key == "":
		return fault.Invalid("unique.key", 0, "unique.key: must not be empty")
	}
	for name, value := range m.Headers {
		for _, prefix := range reservedHeaders {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				return fault.Invalid(headerPath(name), 0, "headers: names that begin with %s are reserved", prefix)
			}
		}
		// A value with a line break would become another header where headers are forwarded over
		// HTTP.
		if !text(value) || strings.ContainsAny(value, "\r\n") {
			return fault.Invalid(headerPath(name), 0, "headers: values must be UTF-8 without CR, LF and NUL")
		}
	}
	return nil
}

// headerPath names a header as the transport names entries of maps.
func headerPath(name string) string { return "headers[" + strconv.Quote(name) + "]" }

// tooFar is the fault of a due time that is too far ahead.
func tooFar(field string) error {
	return fault.Invalid(field, int64(qlog.MaxDelay/time.Second), "%s: must be at most %d days ahead", field, limitDays)
}

// tooLarge is the fault of a message whose record the store does not take.
func tooLarge() error {
	f := fault.New(fault.InvalidArgument, fault.TooLarge, "the message has more than %d bytes with its key and headers", qlog.MaxRecordBytes)
	f.Limit = qlog.MaxRecordBytes
	return f
}
