package topics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The limits of settings. They are those of the schema, which the domain does not import
// (TestLimitsAreTheSchemas).
const (
	// MaxPartitions bounds the partitions of a topic.
	MaxPartitions = 256
	// MaxGroups bounds the consumer groups of a topic.
	MaxGroups = 256

	maxMessages     = 1_000_000_000
	maxAttempts     = 1000
	maxNonRetryable = 32
	maxCode         = 64

	minWindow, maxWindow         = time.Second, 7 * 24 * time.Hour
	minBackoff, maxBackoff       = time.Millisecond, 24 * time.Hour
	minAckTimeout, maxAckTimeout = time.Second, 12 * time.Hour
	minTimeout, maxTimeout       = time.Millisecond, 7 * 24 * time.Hour
	minRunTime, maxRunTime       = time.Second, 7 * 24 * time.Hour
	minGrace, maxGrace           = time.Second, 10 * time.Minute
	maxAge                       = qlog.MaxDelay
)

// The defaults of settings.
const (
	defaultPartitions  = 8
	defaultWindow      = 10 * time.Minute
	defaultDeadLetters = 100_000
	defaultAttempts    = 16
	defaultMinBackoff  = time.Second
	defaultMaxBackoff  = 10 * time.Minute
	defaultAckTimeout  = 30 * time.Second
	defaultTimeout     = 15 * time.Minute
	defaultRunTime     = time.Hour
	defaultGrace       = 10 * time.Second
	// runTimeOver is how much longer than its handler may take a delivery lasts at least by
	// default.
	runTimeOver = time.Minute
)

var (
	// earliestStart and latestStart bound the time at which a group may start.
	earliestStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latestStart   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// reserved is what the names of the server's own topics begin with.
const reserved = "__"

// validName reports whether a name is 1 to 64 of A-Z a-z 0-9 _ -. Names become parts of keys of the
// store, where a brace would move a key, so they are checked here even if they were checked before.
func validName(name string) bool { return len(name) <= 64 && allOf(name, "_-") }

// allOf reports whether s is not empty and has only letters, digits and the others.
func allOf(s, others string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// checkName refuses what cannot be the name of a topic that a client manages.
func checkName(field, name string) error {
	switch {
	case managed(name):
		return nil
	case validName(name):
		return fault.Invalid(field, 0, "%s: names that begin with %s are reserved", field, reserved)
	default:
		return fault.Invalid(field, 64, "%s: must be 1 to 64 of A-Z a-z 0-9 _ -", field)
	}
}

// managed reports whether a topic that clients manage can have the name.
func managed(name string) bool { return validName(name) && !strings.HasPrefix(name, reserved) }

// checkGroupName refuses what cannot be the name of a group.
func checkGroupName(field, name string) error {
	if !validName(name) {
		return fault.Invalid(field, 64, "%s: must be 1 to 64 of A-Z a-z 0-9 _ -", field)
	}
	return nil
}

// complete replaces zero settings of a topic by their defaults, and rounds times to milliseconds,
// in which the store keeps them.
func complete(t *qlog.Topic) {
	t.Partitions = cmp.Or(t.Partitions, defaultPartitions)
	t.Partitioner = cmp.Or(t.Partitioner, qlog.ConsistentHash)
	t.Window = cmp.Or(t.Window, defaultWindow)
	t.MaxDeadLetters = cmp.Or(t.MaxDeadLetters, defaultDeadLetters)
	roundUp(&t.Window, &t.RetainAge, &t.DeadLetterAge)
}

// completeGroup is complete for a group.
func completeGroup(g *qlog.Group) {
	r := &g.Retry
	r.MaxAttempts = cmp.Or(r.MaxAttempts, defaultAttempts)
	// A bound that is given must not contradict the default of the other one.
	switch {
	case r.MinBackoff == 0 && r.MaxBackoff == 0:
		r.MinBackoff, r.MaxBackoff = defaultMinBackoff, defaultMaxBackoff
	case r.MinBackoff == 0:
		r.MinBackoff = min(defaultMinBackoff, r.MaxBackoff)
	case r.MaxBackoff == 0:
		r.MaxBackoff = max(defaultMaxBackoff, r.MinBackoff)
	default:
	}
	g.AckTimeout = cmp.Or(g.AckTimeout, defaultAckTimeout)
	g.Timeout = cmp.Or(g.Timeout, defaultTimeout)
	g.MaxRunTime = cmp.Or(g.MaxRunTime, min(max(defaultRunTime, g.Timeout+runTimeOver), maxRunTime))
	g.ResumeGrace = cmp.Or(g.ResumeGrace, defaultGrace)
	g.Start = completeStart(g.Start)
	roundUp(&r.MinBackoff, &r.MaxBackoff, &g.AckTimeout, &g.Timeout, &g.MaxRunTime, &g.ResumeGrace)
}

// completeStart rounds a time up to microseconds, in which the store keeps it.
func completeStart(s qlog.Start) qlog.Start {
	if s.End {
		return qlog.Start{End: true}
	}
	if rest := s.Time.Nanosecond() % 1000; rest > 0 {
		s.Time = s.Time.Add(time.Duration(1000 - rest))
	}
	return s
}

// roundUp rounds times up to milliseconds.
func roundUp(times ...*time.Duration) {
	for _, d := range times {
		if rest := *d % time.Millisecond; rest > 0 {
			*d += time.Millisecond - rest
		}
	}
}

// rule is a range of a setting.
type rule struct {
	field           string
	value, from, to int64
	// limit is what a fault names: the upper end, of a time in seconds.
	limit int64
	text  string
}

func number(field string, value, from, to int64, text string) rule {
	return rule{field: field, value: value, from: from, to: to, limit: to, text: text}
}

func duration(field string, value, from, to time.Duration, text string) rule {
	return rule{field: field, value: int64(value), from: int64(from), to: int64(to), limit: int64(to / time.Second), text: text}
}

// checkRules returns the fault of the first rule that does not hold.
func checkRules(rules []rule) error {
	for _, r := range rules {
		if r.value < r.from || r.value > r.to {
			return fault.Invalid(r.field, r.limit, "%s: must be from %s", r.field, r.text)
		}
	}
	return nil
}

// check refuses settings of a topic that break a rule. They are complete.
func check(t *qlog.Topic) error {
	if t.Partitioner < qlog.Hash || t.Partitioner > qlog.RoundRobin {
		return fault.Invalid("topic.partitioner", 0, "topic.partitioner: is not known")
	}
	return checkRules([]rule{
		number("topic.partitions", int64(t.Partitions), 1, MaxPartitions, "1 to 256"),
		number("topic.max_messages_per_partition", t.MaxMessages, 0, maxMessages, "0 to 1,000,000,000"),
		duration("topic.idempotency_window", t.Window, minWindow, maxWindow, "1 s to 7 days"),
		duration("topic.retention.max_age", t.RetainAge, 0, maxAge, "0 to 366 days"),
		number("topic.retention.max_messages", t.RetainMessages, 0, maxMessages, "0 to 1,000,000,000"),
		duration("topic.retention.dead_letter_max_age", t.DeadLetterAge, 0, maxAge, "0 to 366 days"),
		number("topic.retention.max_dead_letters", t.MaxDeadLetters, 1, maxMessages, "0 to 1,000,000,000"),
	})
}

// checkGroup refuses settings of a group that break a rule. They are complete.
func checkGroup(g *qlog.Group) error {
	if err := checkGroupName("group.name", g.Name); err != nil {
		return err
	}
	if g.Mode > qlog.Exclusive {
		return fault.Invalid("group.mode", 0, "group.mode: is not known")
	}
	if g.Order > qlog.OrderNone {
		return fault.Invalid("group.order", 0, "group.order: is not known")
	}
	r := &g.Retry
	err := checkRules([]rule{
		number("group.retry.max_attempts", int64(r.MaxAttempts), 1, maxAttempts, "1 to 1,000"),
		duration("group.retry.min_backoff", r.MinBackoff, minBackoff, maxBackoff, "1 ms to 24 h"),
		duration("group.retry.max_backoff", r.MaxBackoff, minBackoff, maxBackoff, "1 ms to 24 h"),
		duration("group.ack_timeout", g.AckTimeout, minAckTimeout, maxAckTimeout, "1 s to 12 h"),
		duration("group.handler_timeout", g.Timeout, minTimeout, maxTimeout, "1 ms to 7 days"),
		duration("group.max_run_time", g.MaxRunTime, minRunTime, maxRunTime, "1 s to 7 days"),
		duration("group.resume_grace", g.ResumeGrace, minGrace, maxGrace, "1 s to 10 minutes"),
	})
	if err != nil {
		return err
	}
	if r.MaxBackoff < r.MinBackoff {
		return fault.Invalid("group.retry.max_backoff", 0, "group.retry.max_backoff: must not be less than min_backoff")
	}
	if len(r.NonRetryable) > maxNonRetryable {
		return fault.Invalid("group.retry.non_retryable_codes", maxNonRetryable,
			"group.retry.non_retryable_codes: must be at most %d", maxNonRetryable)
	}
	for _, code := range r.NonRetryable {
		if len(code) > maxCode || !allOf(code, "_.-") {
			return fault.Invalid("group.retry.non_retryable_codes", maxCode,
				"group.retry.non_retryable_codes: each must be 1 to %d of A-Z a-z 0-9 _ . -", maxCode)
		}
	}
	return checkStart("group.start.time", g.Start)
}

// checkStart refuses a time at which no group can start.
func checkStart(field string, s qlog.Start) error {
	if !s.End && !s.Time.IsZero() && (s.Time.Before(earliestStart) || s.Time.After(latestStart)) {
		return fault.Invalid(field, 0, "%s: must be from the year 2000 to the year 9999", field)
	}
	return nil
}

// checkChange refuses settings that break a rule, or that a topic cannot get after it had others.
func checkChange(was, t *qlog.Topic) error {
	switch {
	case t.Partitioner != was.Partitioner:
		return fault.Invalid("topic.partitioner", 0, "topic.partitioner: cannot be changed")
	case t.Partitions < was.Partitions:
		return fault.Invalid("topic.partitions", int64(was.Partitions),
			"topic.partitions: cannot become fewer than the %d that there are", was.Partitions)
	case t.Partitions > was.Partitions && t.Partitioner == qlog.Hash:
		return fault.Invalid("topic.partitions", int64(was.Partitions),
			"topic.partitions: cannot grow with the partitioner HASH, which would move most keys")
	default:
		return check(t)
	}
}

// sameSettings reports whether two topics agree in the settings that CreateTopic takes. The name is
// not compared.
func sameSettings(a, b *qlog.Topic) bool {
	return a.Partitions == b.Partitions && a.Partitioner == b.Partitioner && a.Bounds == b.Bounds &&
		a.DeadLetterAge == b.DeadLetterAge && a.MaxDeadLetters == b.MaxDeadLetters
}

// clone returns a copy that shares nothing.
func clone(t *qlog.Topic) *qlog.Topic {
	c := *t
	c.Groups = slices.Clone(t.Groups)
	for i := range c.Groups {
		c.Groups[i].Retry.NonRetryable = slices.Clone(c.Groups[i].Retry.NonRetryable)
	}
	return &c
}

// cloneGroup returns a copy that shares nothing.
func cloneGroup(g *qlog.Group) *qlog.Group {
	c := *g
	c.Retry.NonRetryable = slices.Clone(g.Retry.NonRetryable)
	return &c
}
