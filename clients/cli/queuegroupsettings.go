package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// The limits of the durations of groups and messages.
const (
	week           = 7 * day
	maxAckTimeout  = 12 * time.Hour
	maxResumeGrace = 10 * time.Minute
)

// groupSettings are the flags of the settings of a group that can be changed.
type groupSettings struct {
	Order *string `help:"Which messages of a key are delivered: key, in order, but a message that is retried does not hold up the later ones; strict, one at a time, each after the last is settled; none, in any order. Default: key." placeholder:"ORDER"`

	MaxAttempts  *int32       `help:"Number of attempts before a message becomes a dead letter, 1 to 1000. Default: 16." placeholder:"N"`
	MinBackoff   durationFlag `help:"Backoff before the second attempt, 1ms to 24h. It doubles with each attempt; the actual wait is random, up to the backoff. Default: 1s." placeholder:"DURATION"`
	MaxBackoff   durationFlag `help:"Maximum backoff, 1ms to 24h. Default: 10m." placeholder:"DURATION"`
	NonRetryable *[]string    `help:"Failure codes that make a message a dead letter at once, up to 32, comma-separated." placeholder:"CODE,..."`

	AckTimeout     durationFlag `help:"Time within which a consumer must settle or extend a message, unless it chooses another, 1s to 12h. Default: 30s." placeholder:"DURATION"`
	HandlerTimeout durationFlag `help:"Time limit of a handler, unless the message has its own, 1ms to 7d. Default: 15m." placeholder:"DURATION"`
	MaxRunTime     durationFlag `help:"Time after which the server takes a message away, even if its consumer extends it, 1s to 7d. Default: 1h." placeholder:"DURATION"`
	ResumeGrace    durationFlag `help:"How long a consumer that lost its connection keeps its messages, 1s to 10m. Default: 10s." placeholder:"DURATION"`
}

func (c *groupSettings) check() error {
	var codes []string
	if c.NonRetryable != nil {
		codes = *c.NonRetryable
	}
	err := firstError(
		c.checkOrder(),
		checkOptional("--max-attempts", c.MaxAttempts, 1, maxAttempts),
		checkDurationFlag("--min-backoff", c.MinBackoff, time.Millisecond, day),
		checkDurationFlag("--max-backoff", c.MaxBackoff, time.Millisecond, day),
		checkCodes("--non-retryable", codes),
		checkDurationFlag("--ack-timeout", c.AckTimeout, time.Second, maxAckTimeout),
		checkDurationFlag("--handler-timeout", c.HandlerTimeout, time.Millisecond, week),
		checkDurationFlag("--max-run-time", c.MaxRunTime, time.Second, week),
		checkDurationFlag("--resume-grace", c.ResumeGrace, time.Second, maxResumeGrace),
	)
	if err == nil && c.MinBackoff.set && c.MaxBackoff.set && c.MaxBackoff.d < c.MinBackoff.d {
		err = usagef("--max-backoff %s: must be at least --min-backoff, %s", formatDuration(c.MaxBackoff.d), formatDuration(c.MinBackoff.d))
	}
	return err
}

// checkOrder stands in for kong's enum, which does not accept a flag that is not given.
func (c *groupSettings) checkOrder() error {
	if c.Order == nil || orderOf(*c.Order) != parleyv1.DeliveryOrder_DELIVERY_ORDER_UNSPECIFIED {
		return nil
	}
	return usagef("--order %q: must be key, strict or none", *c.Order)
}

// apply sets the settings whose flags are given.
func (c *groupSettings) apply(g *queue.Group) {
	if c.Order != nil {
		g.Order = orderOf(*c.Order)
	}
	if c.changesRetry() {
		c.applyRetry(g)
	}
	for _, one := range []struct {
		flag durationFlag
		to   **durationpb.Duration
	}{
		{c.AckTimeout, &g.AckTimeout}, {c.HandlerTimeout, &g.HandlerTimeout}, {c.MaxRunTime, &g.MaxRunTime}, {c.ResumeGrace, &g.ResumeGrace},
	} {
		if one.flag.set {
			*one.to = durationpb.New(one.flag.d)
		}
	}
}

func (c *groupSettings) applyRetry(g *queue.Group) {
	if g.GetRetry() == nil {
		g.Retry = &queue.RetryPolicy{}
	}
	if c.MaxAttempts != nil {
		g.Retry.MaxAttempts = c.MaxAttempts
	}
	if c.MinBackoff.set {
		g.Retry.MinBackoff = durationpb.New(c.MinBackoff.d)
	}
	if c.MaxBackoff.set {
		g.Retry.MaxBackoff = durationpb.New(c.MaxBackoff.d)
	}
	if c.NonRetryable != nil {
		g.Retry.NonRetryableCodes = *c.NonRetryable
	}
}

func (c *groupSettings) changesRetry() bool {
	return c.MaxAttempts != nil || c.MinBackoff.set || c.MaxBackoff.set || c.NonRetryable != nil
}

// fields returns the names of the settings that apply sets, for UpdateGroup.
func (c *groupSettings) fields() []string {
	return givenFields(
		givenField{"order", c.Order != nil},
		givenField{"retry", c.changesRetry()},
		givenField{"ack_timeout", c.AckTimeout.set},
		givenField{"handler_timeout", c.HandlerTimeout.set},
		givenField{"max_run_time", c.MaxRunTime.set},
		givenField{"resume_grace", c.ResumeGrace.set},
	)
}

// newGroupFlags are the flags of the settings of a new group.
type newGroupFlags struct {
	groupSettings

	Mode *string `help:"How consumers share messages: shared, any consumer gets any message; exclusive, the messages of a partition go to one consumer at a time. This cannot be changed later. Default: shared." placeholder:"MODE"`
}

func (c *newGroupFlags) check() error {
	if c.Mode != nil && modeOf(*c.Mode) == parleyv1.GroupMode_GROUP_MODE_UNSPECIFIED {
		return usagef("--mode %q: must be shared or exclusive", *c.Mode)
	}
	return c.groupSettings.check()
}

// group returns a group with the settings whose flags are given.
func (c *newGroupFlags) group(name string) *queue.Group {
	g := &queue.Group{Name: name}
	if c.Mode != nil {
		g.Mode = modeOf(*c.Mode)
	}
	c.apply(g)
	return g
}

// given returns the flags that are given.
func (c *newGroupFlags) given() []string {
	return givenFields(
		givenField{"--mode", c.Mode != nil}, givenField{"--order", c.Order != nil}, givenField{"--max-attempts", c.MaxAttempts != nil},
		givenField{"--min-backoff", c.MinBackoff.set}, givenField{"--max-backoff", c.MaxBackoff.set},
		givenField{"--non-retryable", c.NonRetryable != nil}, givenField{"--ack-timeout", c.AckTimeout.set},
		givenField{"--handler-timeout", c.HandlerTimeout.set}, givenField{"--max-run-time", c.MaxRunTime.set},
		givenField{"--resume-grace", c.ResumeGrace.set},
	)
}

func orderOf(name string) parleyv1.DeliveryOrder {
	return parleyv1.DeliveryOrder(parleyv1.DeliveryOrder_value["DELIVERY_ORDER_"+strings.ToUpper(name)])
}

func modeOf(name string) parleyv1.GroupMode {
	return parleyv1.GroupMode(parleyv1.GroupMode_value["GROUP_MODE_"+strings.ToUpper(name)])
}

// groupJSON is the JSON form of a group. Durations are in milliseconds.
type groupJSON struct {
	Topic            string   `json:"topic"`
	Group            string   `json:"group"`
	Mode             string   `json:"mode"`
	Order            string   `json:"order"`
	MaxAttempts      int32    `json:"max_attempts"`
	MinBackoffMS     int64    `json:"min_backoff_ms"`
	MaxBackoffMS     int64    `json:"max_backoff_ms"`
	NonRetryable     []string `json:"non_retryable"`
	AckTimeoutMS     int64    `json:"ack_timeout_ms"`
	HandlerTimeoutMS int64    `json:"handler_timeout_ms"`
	MaxRunTimeMS     int64    `json:"max_run_time_ms"`
	ResumeGraceMS    int64    `json:"resume_grace_ms"`
	Paused           bool     `json:"paused"`
}

func modeName(g *queue.Group) string  { return lowerName(g.GetMode().String(), "GROUP_MODE_") }
func orderName(g *queue.Group) string { return lowerName(g.GetOrder().String(), "DELIVERY_ORDER_") }

func groupToJSON(topic string, g *queue.Group) groupJSON {
	return groupJSON{
		Topic: topic, Group: g.GetName(), Mode: modeName(g), Order: orderName(g), MaxAttempts: g.GetRetry().GetMaxAttempts(),
		MinBackoffMS: millis(g.GetRetry().GetMinBackoff()), MaxBackoffMS: millis(g.GetRetry().GetMaxBackoff()),
		NonRetryable: append([]string{}, g.GetRetry().GetNonRetryableCodes()...), // a list, not null
		AckTimeoutMS: millis(g.GetAckTimeout()), HandlerTimeoutMS: millis(g.GetHandlerTimeout()), MaxRunTimeMS: millis(g.GetMaxRunTime()),
		ResumeGraceMS: millis(g.GetResumeGrace()), Paused: g.GetPaused(),
	}
}

// showGroup writes a group's settings as JSON, or for humans one per line, named like their flags.
func showGroup(s *session, topic string, g *queue.Group) error {
	var b strings.Builder
	rows := newTable(&b, "  ", "mode", modeName(g))
	rows.row("order", orderName(g))
	rows.row("max-attempts", g.GetRetry().GetMaxAttempts())
	rows.row("non-retryable", orNone(g.GetRetry().GetNonRetryableCodes()))
	for _, one := range []struct {
		name string
		d    *durationpb.Duration
	}{
		{"min-backoff", g.GetRetry().GetMinBackoff()},
		{"max-backoff", g.GetRetry().GetMaxBackoff()},
		{"ack-timeout", g.GetAckTimeout()},
		{"handler-timeout", g.GetHandlerTimeout()},
		{"max-run-time", g.GetMaxRunTime()},
		{"resume-grace", g.GetResumeGrace()},
	} {
		rows.row(one.name, formatDuration(one.d.AsDuration()))
	}
	rows.row("paused", unless(g.GetPaused(), "yes", "no"))
	if err := rows.flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return s.printer().print(groupToJSON(topic, g), topic+"/"+g.GetName()+"\n"+strings.TrimSuffix(b.String(), "\n"))
}
