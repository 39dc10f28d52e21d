package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
)

// produceElements bounds the fields and values of one Produce request. It admits the largest batch
// that the schema allows: a header is a field with two values, and a message has up to 24 fields
// and values besides its headers.
var produceElements = func() int {
	batch := rulesOf((&parleyv1.ProduceRequest{}).ProtoReflect().Descriptor(), "messages").GetRepeated().GetMaxItems()
	headers := rulesOf((&parleyv1.QueueMessage{}).ProtoReflect().Descriptor(), "headers").GetMap().GetMaxPairs()
	return int(batch * (3*headers + 24))
}()

// resumeElements bounds the fields and values of a request that resumes a session. It admits as
// many deliveries and verdicts as the schema: a delivery has 3 fields and values, a verdict up to
// 9.
var resumeElements = func() int {
	resume := (&parleyv1.Resume{}).ProtoReflect().Descriptor()
	held, unanswered := rulesOf(resume, "held").GetRepeated().GetMaxItems(), rulesOf(resume, "unanswered").GetRepeated().GetMaxItems()
	return int(3*held + 9*unanswered + 100)
}()

// queueMethods is the method table of QueueService. A call about a session names
// no topic but in its delivery tokens, which the handler checks.
var queueMethods = service{
	name: parleyv1connect.QueueServiceName,
	methods: map[protoreflect.Name]methodRow{
		"Produce": {
			access: onTopic(ident.Produce), size: batchRequest, maxElements: produceElements, chargeItems: true, uncompressed: true,
		},
		"CancelMessages":     {access: onTopic(ident.Produce), size: batchRequest, chargeItems: true, uncompressed: true},
		"RescheduleMessages": {access: onTopic(ident.Produce), size: batchRequest, chargeItems: true, uncompressed: true},
		"Consume":            {access: onTopics(ident.Consume), size: batchRequest, maxElements: resumeElements},
		"StreamingConsume": {
			access: onTopics(ident.Consume).in("start.topics"), size: batchRequest, maxElements: resumeElements,
		},
		"Receive":       {access: onTopic(ident.Consume)},
		"Ack":           {access: onAnyTopic(), size: batchRequest, settles: true, uncompressed: true},
		"Nack":          {access: onAnyTopic(), size: batchRequest, settles: true, uncompressed: true},
		"Extend":        {access: onAnyTopic(), size: batchRequest, settles: true, uncompressed: true},
		"UpdateSession": {access: onAnyTopic()},
		"Leave":         {access: onAnyTopic(), settles: true},
	},
}
