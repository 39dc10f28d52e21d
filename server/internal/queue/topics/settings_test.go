package topics

import (
	"strings"
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The limits that the domain enforces are those of the schema, which the domain does not import.
func TestLimitsAreTheSchemas(t *testing.T) {
	t.Parallel()
	rules := func(m proto.Message, field protoreflect.Name) *validate.FieldRules {
		r, err := protovalidate.ResolveFieldRules(m.ProtoReflect().Descriptor().Fields().ByName(field))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	shortest := func(m proto.Message, field protoreflect.Name) int64 {
		return int64(rules(m, field).GetDuration().GetGte().AsDuration())
	}
	longest := func(m proto.Message, field protoreflect.Name) int64 {
		return int64(rules(m, field).GetDuration().GetLte().AsDuration())
	}
	topic, group, retry, retention := &parleyv1.Topic{}, &parleyv1.Group{}, &parleyv1.RetryPolicy{}, &parleyv1.TopicRetention{}
	start := rules(&parleyv1.GroupStart{}, "time").GetTimestamp()
	for name, row := range map[string]struct{ here, schema int64 }{
		"partitions":              {MaxPartitions, int64(rules(topic, "partitions").GetInt32().GetLte())},
		"messages":                {maxMessages, rules(topic, "max_messages_per_partition").GetInt64().GetLte()},
		"messages kept":           {maxMessages, rules(retention, "max_messages").GetInt64().GetLte()},
		"dead letters":            {maxMessages, rules(retention, "max_dead_letters").GetInt64().GetLte()},
		"retention":               {int64(maxAge), longest(retention, "max_age")},
		"dead letters' age":       {int64(maxAge), longest(retention, "dead_letter_max_age")},
		"shortest window":         {int64(minWindow), shortest(topic, "idempotency_window")},
		"longest window":          {int64(maxWindow), longest(topic, "idempotency_window")},
		"attempts":                {maxAttempts, int64(rules(retry, "max_attempts").GetInt32().GetLte())},
		"least min_backoff":       {int64(minBackoff), shortest(retry, "min_backoff")},
		"longest min_backoff":     {int64(maxBackoff), longest(retry, "min_backoff")},
		"least max_backoff":       {int64(minBackoff), shortest(retry, "max_backoff")},
		"longest max_backoff":     {int64(maxBackoff), longest(retry, "max_backoff")},
		"codes":                   {maxNonRetryable, int64(rules(retry, "non_retryable_codes").GetRepeated().GetMaxItems())},
		"shortest ack_timeout":    {int64(minAckTimeout), shortest(group, "ack_timeout")},
		"longest ack_timeout":     {int64(maxAckTimeout), longest(group, "ack_timeout")},
		"least handler_timeout":   {int64(minTimeout), shortest(group, "handler_timeout")},
		"longest handler_timeout": {int64(maxTimeout), longest(group, "handler_timeout")},
		"shortest max_run_time":   {int64(minRunTime), shortest(group, "max_run_time")},
		"longest max_run_time":    {int64(maxRunTime), longest(group, "max_run_time")},
		"shortest resume_grace":   {int64(minGrace), shortest(group, "resume_grace")},
		"longest resume_grace":    {int64(maxGrace), longest(group, "resume_grace")},
		"earliest start":          {earliestStart.Unix(), start.GetGte().GetSeconds()},
		"latest start":            {latestStart.Unix(), start.GetLte().GetSeconds()},
	} {
		if row.here != row.schema || row.here == 0 {
			t.Errorf("%s: the domain's limit is %d, the schema's %d", name, row.here, row.schema)
		}
	}
}

// wantInvalid fails the test unless err is a fault that names the field and the limit.
func wantInvalid(t *testing.T, err error, field string, limit int64) {
	t.Helper()
	f, ok := fault.As(err)
	if !ok || f.Reason != fault.InvalidField || f.Field != field || f.Limit != limit || !strings.HasPrefix(f.Msg, field+":") {
		t.Errorf("got %+v, want a fault of %s with the limit %d", f, field, limit)
	}
}

func TestRefusedTopics(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	const day = 24 * 60 * 60
	for _, c := range []struct {
		field  string
		limit  int64
		change func(t *qlog.Topic)
	}{
		{"topic.partitions", 256, func(t *qlog.Topic) { t.Partitions = 257 }},
		{"topic.partitions", 256, func(t *qlog.Topic) { t.Partitions = -1 }},
		{"topic.partitioner", 0, func(t *qlog.Topic) { t.Partitioner = 4 }},
		{"topic.max_messages_per_partition", 1e9, func(t *qlog.Topic) { t.MaxMessages = 1e9 + 1 }},
		{"topic.max_messages_per_partition", 1e9, func(t *qlog.Topic) { t.MaxMessages = -1 }},
		{"topic.idempotency_window", 7 * day, func(t *qlog.Topic) { t.Window = time.Millisecond }},
		{"topic.idempotency_window", 7 * day, func(t *qlog.Topic) { t.Window = 7*24*time.Hour + 1 }},
		{"topic.retention.max_age", 366 * day, func(t *qlog.Topic) { t.RetainAge = -time.Second }},
		{"topic.retention.max_age", 366 * day, func(t *qlog.Topic) { t.RetainAge = 367 * 24 * time.Hour }},
		{"topic.retention.max_messages", 1e9, func(t *qlog.Topic) { t.RetainMessages = -1 }},
		{"topic.retention.dead_letter_max_age", 366 * day, func(t *qlog.Topic) { t.DeadLetterAge = 367 * 24 * time.Hour }},
		{"topic.retention.max_dead_letters", 1e9, func(t *qlog.Topic) { t.MaxDeadLetters = -1 }},
	} {
		topic := qlog.Topic{Name: "jobs"}
		c.change(&topic)
		wantInvalid(t, second(f.CreateTopic(ctx, topic)), c.field, c.limit)
	}
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}

	f.create(qlog.Topic{Name: "jobs", Partitions: 3})
	f.create(qlog.Topic{Name: "hash", Partitions: 3, Partitioner: qlog.Hash})
	for _, c := range []struct {
		topic, field string
		limit        int64
		change       func(t *qlog.Topic)
	}{
		{"jobs", "topic.partitions", 3, func(t *qlog.Topic) { t.Partitions = 2 }},
		{"hash", "topic.partitions", 3, func(t *qlog.Topic) { t.Partitions = 4 }},
		{"hash", "topic.partitions", 3, func(t *qlog.Topic) { t.Partitions = 0 }}, // the default, 8
		{"jobs", "topic.partitioner", 0, func(t *qlog.Topic) { t.Partitioner = qlog.Hash }},
		{"jobs", "topic.partitions", 256, func(t *qlog.Topic) { t.Partitions = 257 }},
		{"jobs", "topic.retention.max_age", 366 * day, func(t *qlog.Topic) { t.RetainAge = -1e9 }},
	} {
		_, err := f.UpdateTopic(ctx, c.topic, func(t *qlog.Topic) error { c.change(t); return nil })
		wantInvalid(t, err, c.field, c.limit)
	}
	f.whole("jobs", 3)
	f.whole("hash", 3)
}

func TestRefusedGroups(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	f.create(qlog.Topic{Name: "jobs", Partitions: 1}, "work")
	before := f.read("jobs")
	const day = 24 * 60 * 60
	for _, c := range []struct {
		field  string
		limit  int64
		change func(g *qlog.Group)
	}{
		{"group.mode", 0, func(g *qlog.Group) { g.Mode = 2 }},
		{"group.order", 0, func(g *qlog.Group) { g.Order = 3 }},
		{"group.retry.max_attempts", 1000, func(g *qlog.Group) { g.Retry.MaxAttempts = 1001 }},
		{"group.retry.max_attempts", 1000, func(g *qlog.Group) { g.Retry.MaxAttempts = -1 }},
		{"group.retry.min_backoff", day, func(g *qlog.Group) { g.Retry.MinBackoff = 25 * time.Hour }},
		{"group.retry.max_backoff", day, func(g *qlog.Group) { g.Retry.MaxBackoff = 25 * time.Hour }},
		{"group.retry.max_backoff", 0, func(g *qlog.Group) { g.Retry.MinBackoff, g.Retry.MaxBackoff = 2*time.Hour, time.Hour }},
		{"group.retry.non_retryable_codes", 32, func(g *qlog.Group) { g.Retry.NonRetryable = make([]string, 33) }},
		{"group.retry.non_retryable_codes", 64, func(g *qlog.Group) { g.Retry.NonRetryable = []string{"a", "b c"} }},
		{"group.retry.non_retryable_codes", 64, func(g *qlog.Group) { g.Retry.NonRetryable = []string{strings.Repeat("a", 65)} }},
		{"group.ack_timeout", 12 * 60 * 60, func(g *qlog.Group) { g.AckTimeout = 13 * time.Hour }},
		{"group.handler_timeout", 7 * day, func(g *qlog.Group) { g.Timeout = 8 * 24 * time.Hour }},
		{"group.max_run_time", 7 * day, func(g *qlog.Group) { g.MaxRunTime = time.Millisecond }},
		{"group.resume_grace", 600, func(g *qlog.Group) { g.ResumeGrace = time.Hour }},
		{"group.start.time", 0, func(g *qlog.Group) { g.Start.Time = time.Unix(1, 0) }},
	} {
		g := qlog.Group{Name: "new"}
		c.change(&g)
		wantInvalid(t, second(f.CreateGroup(ctx, "jobs", g)), c.field, c.limit)
		if c.field == "group.mode" || c.field == "group.start.time" {
			continue // UpdateGroup ignores them
		}
		_, err := f.UpdateGroup(ctx, "jobs", "work", func(g *qlog.Group) error { c.change(g); return nil })
		wantInvalid(t, err, c.field, c.limit)
	}
	if after := f.whole("jobs", 1, "work"); after.Version != before.Version {
		t.Errorf("version %d, before %d", after.Version, before.Version)
	}
}

// What a caller is told is what is stored, also of times that are finer than the store keeps.
func TestTimesAreRounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	made, err := f.CreateTopic(t.Context(), qlog.Topic{
		Name: "jobs", Partitions: 1, Bounds: qlog.Bounds{Window: time.Second + 1, RetainAge: 1}, DeadLetterAge: time.Millisecond + 1,
	})
	f.must(err)
	stored := f.read("jobs")
	if made.Bounds != stored.Bounds || made.RetainAge != time.Millisecond || made.DeadLetterAge != stored.DeadLetterAge || !made.CreatedAt.Equal(stored.CreatedAt) {
		t.Errorf("returned %+v, stored %+v", made, stored)
	}
	g, err := f.CreateGroup(t.Context(), "jobs", qlog.Group{
		Name: "work", Retry: qlog.RetryPolicy{MaxBackoff: time.Millisecond + 1}, Timeout: 7 * 24 * time.Hour,
		Start: qlog.Start{Time: time.Unix(1_700_000_000, 1)},
	})
	f.must(err)
	if got := f.read("jobs").Groups[0]; !sameGroup(&got, g) || g.Retry.MinBackoff != 2*time.Millisecond ||
		g.Retry.MaxBackoff != 2*time.Millisecond || g.MaxRunTime != 7*24*time.Hour || g.Start.Time.Nanosecond() != 1000 {
		t.Errorf("returned %+v, stored %+v", g, got)
	}
}

// Names that could leave their place in a key, or that are the server's own, are refused by every
// call, and nothing is stored or remembered under them.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	f.create(qlog.Topic{Name: "jobs", Partitions: 1}, "work")
	before := f.keys()
	update := func(*qlog.Topic) error { return nil }
	updateGroup := func(*qlog.Group) error { return nil }
	for _, name := range []string{
		"", " ", "a b", "}", "{jobs:0}", "jobs}", "a:b", "a\x00b", "a\nb", "ä", "*", "../x", "jobs\xff", strings.Repeat("a", 65), "__own", "__",
	} {
		limit := int64(64)
		if strings.HasPrefix(name, "__") {
			limit = 0
		} else {
			f.want(second(f.catalog.Topic(ctx, name)), fault.TopicNotFound)
			f.want(second(f.catalog.Reload(ctx, name)), fault.TopicNotFound)
			f.want(f.catalog.Heal(ctx, &qlog.Topic{Name: name}, 0), fault.TopicNotFound)
		}
		wantInvalid(t, second(f.CreateTopic(ctx, qlog.Topic{Name: name})), "topic.name", limit)
		_, _, err := f.RepairTopic(ctx, name)
		for _, err := range []error{
			err, second(f.Topic(ctx, name)), second(f.UpdateTopic(ctx, name, update)), f.DeleteTopic(ctx, name, name),
			second(f.SetTopicPaused(ctx, name, true)), second(f.Group(ctx, name, "work")),
			second(f.CreateGroup(ctx, name, qlog.Group{Name: "g"})), second(f.UpdateGroup(ctx, name, "work", updateGroup)),
			f.DeleteGroup(ctx, name, "work", "work"), second(f.SetGroupPaused(ctx, name, "work", true)),
			f.SeekGroup(ctx, name, "work", qlog.Start{}),
		} {
			wantInvalid(t, err, "topic", limit)
		}
		if limit == 0 {
			continue // a group may have such a name
		}
		wantInvalid(t, second(f.CreateGroup(ctx, "jobs", qlog.Group{Name: name})), "group.name", limit)
		for _, err := range []error{
			second(f.Group(ctx, "jobs", name)), second(f.UpdateGroup(ctx, "jobs", name, updateGroup)),
			f.DeleteGroup(ctx, "jobs", name, name), second(f.SetGroupPaused(ctx, "jobs", name, true)),
			f.SeekGroup(ctx, "jobs", name, qlog.Start{}),
		} {
			f.want(err, fault.GroupNotFound)
		}
	}
	if after := f.keys(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("keys: %q, before: %q", after, before)
	}
	if len(f.catalog.entries) > 1 {
		t.Errorf("%d names are remembered", len(f.catalog.entries))
	}
}
