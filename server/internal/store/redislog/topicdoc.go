package redislog

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// topicDoc is the settings of a topic as Redis stores them. Documents are JSON, so that an operator
// can read them, and durations are milliseconds. A field that a server does not know is lost when
// it changes the document.
type topicDoc struct {
	State           int   `json:"state,omitempty"`
	Partitions      int   `json:"partitions"`
	Partitioner     int   `json:"partitioner"`
	MaxMessages     int64 `json:"max_messages,omitempty"`
	DropOldest      bool  `json:"drop_oldest,omitempty"`
	WindowMS        int64 `json:"idempotency_window_ms"`
	RetainAgeMS     int64 `json:"retain_age_ms,omitempty"`
	RetainMessages  int64 `json:"retain_messages,omitempty"`
	DeadLetterAgeMS int64 `json:"dead_letter_age_ms,omitempty"`
	MaxDeadLetters  int64 `json:"max_dead_letters,omitempty"`
	ProducePaused   bool  `json:"produce_paused,omitempty"`
	CreatedAtMS     int64 `json:"created_at_ms"`
}

// groupDoc is the settings of a group.
type groupDoc struct {
	Mode          string   `json:"mode"`
	Order         string   `json:"order"`
	MaxAttempts   int      `json:"max_attempts"`
	MinBackoffMS  int64    `json:"min_backoff_ms"`
	MaxBackoffMS  int64    `json:"max_backoff_ms"`
	NonRetryable  []string `json:"non_retryable_codes,omitempty"`
	AckTimeoutMS  int64    `json:"ack_timeout_ms"`
	TimeoutMS     int64    `json:"timeout_ms"`
	MaxRunTimeMS  int64    `json:"max_run_time_ms"`
	ResumeGraceMS int64    `json:"resume_grace_ms"`
	StartEnd      bool     `json:"start_end,omitempty"`
	StartUS       int64    `json:"start_us,omitempty"`
	Paused        bool     `json:"paused,omitempty"`
}

// copyDoc is what a partition has of its topic: everything that is needed to restore the settings.
type copyDoc struct {
	Name    string              `json:"name"`
	UID     string              `json:"uid"`
	Version int64               `json:"version"`
	Topic   topicDoc            `json:"topic"`
	Groups  map[string]groupDoc `json:"groups,omitempty"`
}

var (
	modeNames  = []string{qlog.Shared: "shared", qlog.Exclusive: "exclusive"}
	orderNames = []string{qlog.OrderKey: "key", qlog.OrderStrict: "strict", qlog.OrderNone: "none"}
)

func topicDocOf(t *qlog.Topic) topicDoc {
	return topicDoc{
		State: int(t.State), Partitions: t.Partitions, Partitioner: int(t.Partitioner),
		MaxMessages: t.MaxMessages, DropOldest: t.DropOldest, WindowMS: t.Window.Milliseconds(),
		RetainAgeMS: t.RetainAge.Milliseconds(), RetainMessages: t.RetainMessages,
		DeadLetterAgeMS: t.DeadLetterAge.Milliseconds(), MaxDeadLetters: t.MaxDeadLetters,
		ProducePaused: t.ProducePaused, CreatedAtMS: t.CreatedAt.UnixMilli(),
	}
}

func (d *topicDoc) topic() *qlog.Topic {
	return &qlog.Topic{
		State: qlog.TopicState(d.State), Partitions: d.Partitions, //nolint:gosec // 0 to 2
		Partitioner: qlog.Partitioner(d.Partitioner), //nolint:gosec // 1 to 3
		Bounds: qlog.Bounds{
			MaxMessages: d.MaxMessages, DropOldest: d.DropOldest, Window: millis(d.WindowMS),
			RetainAge: millis(d.RetainAgeMS), RetainMessages: d.RetainMessages,
		},
		DeadLetterAge: millis(d.DeadLetterAgeMS), MaxDeadLetters: d.MaxDeadLetters,
		ProducePaused: d.ProducePaused, CreatedAt: time.UnixMilli(d.CreatedAtMS),
	}
}

func groupDocOf(g *qlog.Group) groupDoc {
	d := groupDoc{
		Mode: modeNames[g.Mode], Order: orderNames[g.Order],
		MaxAttempts: g.Retry.MaxAttempts, MinBackoffMS: g.Retry.MinBackoff.Milliseconds(), MaxBackoffMS: g.Retry.MaxBackoff.Milliseconds(),
		NonRetryable: g.Retry.NonRetryable, AckTimeoutMS: g.AckTimeout.Milliseconds(), TimeoutMS: g.Timeout.Milliseconds(),
		MaxRunTimeMS: g.MaxRunTime.Milliseconds(), ResumeGraceMS: g.ResumeGrace.Milliseconds(), StartEnd: g.Start.End, Paused: g.Paused,
	}
	if !g.Start.Time.IsZero() {
		d.StartUS = ceilMicro(g.Start.Time)
	}
	return d
}

func (d *groupDoc) group(name string) (qlog.Group, error) {
	g := qlog.Group{
		Name: name,
		Retry: qlog.RetryPolicy{
			MaxAttempts: d.MaxAttempts, MinBackoff: millis(d.MinBackoffMS), MaxBackoff: millis(d.MaxBackoffMS), NonRetryable: d.NonRetryable,
		},
		AckTimeout: millis(d.AckTimeoutMS), Timeout: millis(d.TimeoutMS), MaxRunTime: millis(d.MaxRunTimeMS),
		ResumeGrace: millis(d.ResumeGraceMS), Start: qlog.Start{End: d.StartEnd}, Paused: d.Paused,
	}
	if d.StartUS != 0 {
		g.Start.Time = time.UnixMicro(d.StartUS)
	}
	mode, err := indexOf(modeNames, d.Mode)
	if err != nil {
		return qlog.Group{}, fmt.Errorf("mode of group %s: %w", name, err)
	}
	order, err := indexOf(orderNames, d.Order)
	if err != nil {
		return qlog.Group{}, fmt.Errorf("order of group %s: %w", name, err)
	}
	g.Mode, g.Order = qlog.GroupMode(mode), qlog.Order(order)
	return g, nil
}

func indexOf(names []string, name string) (uint8, error) {
	for i, n := range names {
		if n == name {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not known", name)
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// ceilMicro rounds up to microseconds since 1970.
func ceilMicro(at time.Time) int64 {
	us := at.UnixMicro()
	if at.After(time.UnixMicro(us)) {
		us++
	}
	return us
}

func encodeTopic(t *qlog.Topic) ([]byte, error) { return encodeDoc("topic "+t.Name, topicDocOf(t)) }

func decodeTopic(text string) (*qlog.Topic, error) {
	var d topicDoc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("decode a topic: %w", err)
	}
	return d.topic(), nil
}

func encodeGroup(g *qlog.Group) ([]byte, error) { return encodeDoc("group "+g.Name, groupDocOf(g)) }

func decodeGroup(name, text string) (qlog.Group, error) {
	var d groupDoc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return qlog.Group{}, fmt.Errorf("decode group %s: %w", name, err)
	}
	return d.group(name)
}

func encodeCopy(t *qlog.Topic) ([]byte, error) {
	d := copyDoc{Name: t.Name, UID: t.UID, Version: t.Version, Topic: topicDocOf(t), Groups: map[string]groupDoc{}}
	for i := range t.Groups {
		d.Groups[t.Groups[i].Name] = groupDocOf(&t.Groups[i])
	}
	return encodeDoc("topic "+t.Name, d)
}

func decodeCopy(text string) (*qlog.Topic, error) {
	var d copyDoc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("decode a copy of a topic: %w", err)
	}
	t := d.Topic.topic()
	t.Name, t.UID, t.Version = d.Name, d.UID, d.Version
	for name := range d.Groups {
		doc := d.Groups[name]
		g, err := doc.group(name)
		if err != nil {
			return nil, err
		}
		t.Groups = append(t.Groups, g)
	}
	sortGroups(t.Groups)
	return t, nil
}

func encodeDoc(what string, doc any) ([]byte, error) {
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	return b, nil
}
