package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	day = 24 * time.Hour
	// maxDelay is the maximum delay of a scheduled message, and the maximum retention.
	maxDelay = 366 * day
)

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	headerForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	// keyForm is the form of idempotency keys and of unique keys.
	keyForm = regexp.MustCompile(`^[!-~]{1,128}$`)
)

// firstError returns the first error that is not nil, or nil.
func firstError(mistakes ...error) error {
	for _, err := range mistakes {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkName returns an error for an invalid name of a topic, a group or a consumer.
func checkName(what, name string) error {
	if !nameForm.MatchString(name) {
		return usagef("%s %q: must be 1 to 64 characters of A-Z a-z 0-9 _ -", what, name)
	}
	return nil
}

// checkOptionalName is like checkName, but accepts an empty name.
func checkOptionalName(what, name string) error {
	if name == "" {
		return nil
	}
	return checkName(what, name)
}

func checkNames(what string, names []string) error {
	for _, name := range names {
		if err := checkName(what, name); err != nil {
			return err
		}
	}
	return nil
}

func checkCodes(what string, codes []string) error {
	if len(codes) > maxCodes {
		return usagef("%s: %d codes; must be at most %d", what, len(codes), maxCodes)
	}
	for _, code := range codes {
		if !headerForm.MatchString(code) {
			return usagef("%s %q: must be 1 to 64 characters of A-Z a-z 0-9 _ . -", what, code)
		}
	}
	return nil
}

// checkIDs returns an error for an id that cannot be one. Otherwise ids are opaque.
func checkIDs(what string, ids []string) error {
	for _, id := range ids {
		if len(id) == 0 || len(id) > maxQueueID || !utf8.ValidString(id) {
			return usagef("%s %q: must be 1 to %d bytes", what, id, maxQueueID)
		}
	}
	return nil
}

func checkRange(flag string, n, low, high int64) error {
	if n < low || n > high {
		return usagef("%s %d: must be %d to %d", flag, n, low, high)
	}
	return nil
}

// checkOptional is like checkRange, but accepts nil.
func checkOptional[T int | int32 | int64](flag string, n *T, low, high int64) error {
	if n == nil {
		return nil
	}
	return checkRange(flag, int64(*n), low, high)
}

func checkDuration(flag string, d, low, high time.Duration) error {
	if d < low || d > high {
		return usagef("%s %s: must be %s to %s", flag, formatDuration(d), formatDuration(low), formatDuration(high))
	}
	return nil
}

// checkDurationFlag is like checkDuration, but accepts a flag that is not set.
func checkDurationFlag(flag string, d durationFlag, low, high time.Duration) error {
	if !d.set {
		return nil
	}
	return checkDuration(flag, d.d, low, high)
}

// checkMessage returns an error for flags that would make an invalid message.
func checkMessage(key, idempotencyKey string, headers map[string]string) error {
	if len(key) > maxQueueKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return usagef("--key: %d bytes; must be at most %d bytes of UTF-8 without NUL", len(key), maxQueueKey)
	}
	if err := checkKey("--idempotency-key", idempotencyKey); err != nil {
		return err
	}
	if len(headers) > maxQueueHeaders {
		return usagef("--header: %d headers; must be at most %d", len(headers), maxQueueHeaders)
	}
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case !headerForm.MatchString(name):
			return usagef("--header %q: the name must be 1 to 64 characters of A-Z a-z 0-9 _ . -", name)
		case strings.HasPrefix(lower, "webhook-"), strings.HasPrefix(lower, "parley-"):
			return usagef("--header %s: names that begin with webhook- and parley- are reserved", name)
		case len(value) > maxHeaderValue || !utf8.ValidString(value):
			return usagef("--header %s: the value has %d bytes; must be at most %d bytes of UTF-8", name, len(value), maxHeaderValue)
		}
	}
	return nil
}

// checkKey returns an error for an invalid idempotency key or unique key. It accepts an empty one.
func checkKey(flag, key string) error {
	if key != "" && !keyForm.MatchString(key) {
		return usagef("%s: must be 1 to 128 printable ASCII characters without spaces", flag)
	}
	return nil
}

// durationFlag is an optional duration that can be given in days too: 90s, 1h30m, 7d.
type durationFlag struct {
	d   time.Duration
	set bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *durationFlag) UnmarshalText(text []byte) error {
	s.set = true
	var err error
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		if s.d = time.Duration(n * float64(day)); err == nil && n >= -1e5 && n <= 1e5 { // false for NaN
			return nil
		}
	} else if s.d, err = time.ParseDuration(string(text)); err == nil {
		return nil
	}
	return fmt.Errorf("invalid duration %q: must be like 500ms, 90s, 1h30m or 7d", text)
}

// formatDuration formats a duration in the form that durationFlag parses, such as 1h30m or 7d.
func formatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// timeFlag is an optional time, in RFC 3339 or as a local time.
type timeFlag struct{ t time.Time }

// The first and the last year of a time that the server accepts.
const (
	minYear = 2000
	maxYear = 9999
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *timeFlag) UnmarshalText(text []byte) error {
	var err error
	if m.t, err = time.Parse(time.RFC3339, string(text)); err != nil {
		m.t, err = time.ParseInLocation(time.DateTime, string(text), time.Local)
	}
	if err != nil {
		return fmt.Errorf("invalid time %q: must be like 2026-01-31T12:00:00Z or '2026-01-31 12:00:00'", text)
	}
	if year := m.t.UTC().Year(); year < minYear || year > maxYear {
		return fmt.Errorf("%q: the year must be %d to %d", text, minYear, maxYear)
	}
	return nil
}

// positionFlag is a position at which a group starts to read: beginning, end or a time. The zero
// value means that none was given.
type positionFlag struct {
	queue.Start

	// text describes the position for humans.
	text string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *positionFlag) UnmarshalText(text []byte) error {
	switch string(text) {
	case "beginning":
		p.Start, p.text = queue.FromBeginning(), "the beginning"
		return nil
	case "end":
		p.Start, p.text = queue.FromEnd(), "the end"
		return nil
	}
	var m timeFlag
	if err := m.UnmarshalText(text); err != nil {
		return fmt.Errorf("%q: must be beginning, end or a time like 2026-01-31T12:00:00Z", text)
	}
	p.Start, p.text = queue.FromTime(m.t), m.t.Local().Format(time.DateTime)
	return nil
}
