package queue

import (
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The limits that the domain enforces are those of the schema, which the domain does not know.
func TestLimitsAreTheSchemas(t *testing.T) {
	t.Parallel()
	rules := func(m proto.Message, field protoreflect.Name) *validate.FieldRules {
		r, err := protovalidate.ResolveFieldRules(m.ProtoReflect().Descriptor().Fields().ByName(field))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	longest := func(m proto.Message, field protoreflect.Name) int64 {
		return int64(rules(m, field).GetDuration().GetLte().AsDuration())
	}
	topic, retry, retention := &parleyv1.Topic{}, &parleyv1.RetryPolicy{}, &parleyv1.TopicRetention{}
	for name, row := range map[string]struct{ here, schema int64 }{
		"partitions":            {MaxPartitions, int64(rules(topic, "partitions").GetInt32().GetLte())},
		"messages":              {maxMessagesLimit, rules(topic, "max_messages_per_partition").GetInt64().GetLte()},
		"messages kept":         {maxMessagesLimit, rules(retention, "max_messages").GetInt64().GetLte()},
		"messages kept by trim": {maxMessagesLimit, rules(&parleyv1.TrimTopicRequest{}, "max_messages").GetInt64().GetLte()},
		"shortest window":       {int64(minWindow), int64(rules(topic, "idempotency_window").GetDuration().GetGte().AsDuration())},
		"longest window":        {int64(maxWindow), longest(topic, "idempotency_window")},
		"attempts":              {maxAttempts, int64(rules(retry, "max_attempts").GetInt32().GetLte())},
		"shortest backoff":      {int64(time.Millisecond), int64(rules(retry, "min_backoff").GetDuration().GetGte().AsDuration())},
		"longest least backoff": {int64(maxBackoff), longest(retry, "min_backoff")},
		"longest most backoff":  {int64(maxBackoff), longest(retry, "max_backoff")},
		"codes":                 {maxNonRetryable, int64(rules(retry, "non_retryable_codes").GetRepeated().GetMaxItems())},
		"retention":             {int64(MaxDelay), longest(retention, "max_age")},
		"dead letters":          {int64(MaxDelay), longest(retention, "dead_letter_max_age")},
		"trim":                  {int64(MaxDelay), longest(&parleyv1.TrimTopicRequest{}, "max_age")},
		"delay":                 {int64(MaxDelay), longest(&parleyv1.ScheduledMessage{}, "delay")},
		"new delay":             {int64(MaxDelay), longest(&parleyv1.RescheduleScheduledRequest{}, "delay")},
		"retry's delay":         {int64(MaxDelay), longest(&parleyv1.NackRetry{}, "delay")},
		"credits":               {MaxCredits, rules(&parleyv1.ConsumeRequest{}, "max_messages").GetInt64().GetLte()},
		"credits in bytes":      {MaxCreditBytes, rules(&parleyv1.ConsumeRequest{}, "max_bytes").GetInt64().GetLte()},
	} {
		if row.here != row.schema || row.here == 0 {
			t.Errorf("%s: the domain's limit is %d, the schema's %d", name, row.here, row.schema)
		}
	}
}
