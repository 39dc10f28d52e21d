package cli

import (
	"regexp"
	"testing"

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
	message, topic, group, retry := &parleyv1.QueueMessage{}, &parleyv1.Topic{}, &parleyv1.Group{}, &parleyv1.RetryPolicy{}
	consume := &parleyv1.ConsumeRequest{}
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
		"dead letters": {maxBatchIDs, int64(rules(&parleyv1.DeadLetterIds{}, "dead_letter_ids").GetRepeated().GetMaxItems())},
		"retries":      {maxBatchIDs, int64(rules(&parleyv1.RetryJobsRequest{}, "message_ids").GetRepeated().GetMaxItems())},
		"ids":          {maxQueueID, int64(rules(&parleyv1.GetJobRequest{}, "message_id").GetString().GetMaxBytes())},
		"topics":       {maxTopics, int64(rules(consume, "topics").GetRepeated().GetMaxItems())},
		"concurrency":  {maxConcurrency, int64(rules(consume, "concurrency").GetInt32().GetLte())},
		"in flight":    {maxConcurrency, int64(rules(consume, "max_in_flight").GetInt32().GetLte())},
		"replayed":     {maxReplayed, int64(rules(&parleyv1.ReplayDeadLettersRequest{}, "limit").GetInt32().GetLte())},
		"reason":       {maxNackReason, int64(rules(&parleyv1.NackItem{}, "reason").GetString().GetMaxBytes())},
		"delay":        {int64(maxDelay), longest(message, "delay")},
		"retention":    {int64(maxDelay), longest(&parleyv1.TopicRetention{}, "max_age")},
		"ttl":          {int64(maxDelay), longest(message, "ttl")},
		"timeout":      {int64(week), longest(message, "timeout")},
		"unique key":   {int64(week), longest(&parleyv1.Unique{}, "at_most")},
		"handlers":     {int64(week), longest(group, "handler_timeout")},
		"run time":     {int64(week), longest(group, "max_run_time")},
		"grace":        {int64(maxResumeGrace), longest(group, "resume_grace")},
		"backoff":      {int64(day), longest(retry, "max_backoff")},
		"window":       {int64(week), longest(topic, "idempotency_window")},
		"ack timeout":  {int64(maxAckTimeout), longest(consume, "ack_timeout")},
	} {
		if row.here != row.schema {
			t.Errorf("%s: the commands allow %d, the schema %d", name, row.here, row.schema)
		}
	}
	for form, schema := range map[*regexp.Regexp]string{
		nameForm:   rules(consume, "group").GetString().GetPattern(),
		headerForm: headers.GetKeys().GetString().GetPattern(),
		keyForm:    rules(&parleyv1.Unique{}, "key").GetString().GetPattern(),
	} {
		if form.String() != schema {
			t.Errorf("the commands allow %s, the schema %s", form, schema)
		}
	}
}
