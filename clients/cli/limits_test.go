package cli

import (
	"regexp"
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestLimitsMatchSchema checks that the limits of the queue commands are those of the protos.
func TestLimitsMatchSchema(t *testing.T) {
	t.Parallel()
	resolve := func(fd protoreflect.FieldDescriptor) *validate.FieldRules {
		r, err := protovalidate.ResolveFieldRules(fd)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	rules := func(m proto.Message, field protoreflect.Name) *validate.FieldRules {
		return resolve(m.ProtoReflect().Descriptor().Fields().ByName(field))
	}
	longest := func(m proto.Message, field protoreflect.Name) int64 {
		return int64(rules(m, field).GetDuration().GetLte().AsDuration())
	}
	message, topic, retry := &parleyv1.QueueMessage{}, &parleyv1.Topic{}, &parleyv1.RetryPolicy{}
	headers := rules(message, "headers").GetMap()
	for name, row := range map[string]struct{ here, schema int64 }{
		"partitions":   {maxPartitions, int64(rules(topic, "partitions").GetInt32().GetLte())},
		"messages":     {maxMessages, rules(topic, "max_messages_per_partition").GetInt64().GetLte()},
		"attempts":     {maxAttempts, int64(rules(retry, "max_attempts").GetInt32().GetLte())},
		"codes":        {maxCodes, int64(rules(retry, "non_retryable_codes").GetRepeated().GetMaxItems())},
		"key":          {maxQueueKey, int64(rules(message, "key").GetString().GetMaxBytes())},
		"payload":      {maxQueuePayload, int64(rules(message, "payload").GetBytes().GetMaxLen())},
		"headers":      {maxQueueHeaders, int64(headers.GetMaxPairs())},
		"header value": {maxHeaderValue, int64(headers.GetValues().GetString().GetMaxBytes())},
		"dead letters": {maxDeadIDs, int64(rules(&parleyv1.DeadLetterIds{}, "dead_letter_ids").GetRepeated().GetMaxItems())},
		"replayed":     {maxReplayed, int64(rules(&parleyv1.ReplayDeadLettersRequest{}, "limit").GetInt32().GetLte())},
		"reason":       {maxNackReason, int64(rules(&parleyv1.NackItem{}, "reason").GetString().GetMaxBytes())},
		"delay":        {int64(maxDelay), longest(&parleyv1.ScheduledMessage{}, "delay")},
		"retention":    {int64(maxDelay), longest(&parleyv1.TopicRetention{}, "max_age")},
		"backoff":      {int64(day), longest(retry, "max_backoff")},
		"window":       {int64(7 * day), longest(topic, "idempotency_window")},
		"ack timeout":  {int64(12 * time.Hour), longest(&parleyv1.ConsumeRequest{}, "ack_timeout")},
	} {
		if row.here != row.schema {
			t.Errorf("%s: the commands allow %d, the schema %d", name, row.here, row.schema)
		}
	}
	for form, schema := range map[*regexp.Regexp]string{
		nameForm:           rules(&parleyv1.ConsumeRequest{}, "topic").GetString().GetPattern(),
		headerForm:         headers.GetKeys().GetString().GetPattern(),
		queueMessageIDForm: rules(&parleyv1.CancelScheduledRequest{}, "message_id").GetString().GetPattern(),
		deadLetterIDForm:   rules(&parleyv1.DeadLetterIds{}, "dead_letter_ids").GetRepeated().GetItems().GetString().GetPattern(),
	} {
		if form.String() != schema {
			t.Errorf("the commands allow %s, the schema %s", form, schema)
		}
	}
}
