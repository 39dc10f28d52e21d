package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
)

// nextPackage is the package of the queues' second design. It is served only if Deps has its parts.
const nextPackage = "parley.next.v1"

// isNext reports whether a method belongs to nextPackage.
func (m *method) isNext() bool { return m.descriptor.ParentFile().Package() == nextPackage }

// produceElements bounds the fields and values of one Produce request. It admits the largest batch
// that the schema allows: a header is a field with two values, and a message has up to 24 fields
// and values besides its headers.
var produceElements = func() int {
	batch := rulesOf((&nextv1.ProduceRequest{}).ProtoReflect().Descriptor(), "messages").GetRepeated().GetMaxItems()
	headers := rulesOf((&nextv1.QueueMessage{}).ProtoReflect().Descriptor(), "headers").GetMap().GetMaxPairs()
	return int(batch * (3*headers + 24))
}()

// resumeElements bounds the fields and values of a request that resumes a session. It admits as
// many deliveries and verdicts as the schema: a delivery has 3 fields and values, a verdict up to
// 9.
var resumeElements = func() int {
	resume := (&nextv1.Resume{}).ProtoReflect().Descriptor()
	held, unanswered := rulesOf(resume, "held").GetRepeated().GetMaxItems(), rulesOf(resume, "unanswered").GetRepeated().GetMaxItems()
	return int(3*held + 9*unanswered + 100)
}()

// nextQueueMethods is the method table of parley.next.v1.QueueService. A call about a session names
// no topic but in its delivery tokens, which the handler checks.
var nextQueueMethods = service{
	name: nextv1connect.QueueServiceName,
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

// nextAdminMethods is the method table of parley.next.v1.QueueAdminService.
var nextAdminMethods = service{
	name: nextv1connect.QueueAdminServiceName,
	methods: map[protoreflect.Name]methodRow{
		"CreateTopic":       {access: asOperator()},
		"UpdateTopic":       {access: asOperator()},
		"DeleteTopic":       {access: asOperator()},
		"GetTopic":          {access: asOperator()},
		"ListTopics":        {access: asOperator(), maxPage: 1000},
		"SetTopicPaused":    {access: asOperator()},
		"RepairTopic":       {access: asOperator()},
		"GetTopicStats":     {access: asOperator()},
		"CreateGroup":       {access: asOperator()},
		"UpdateGroup":       {access: asOperator()},
		"GetGroup":          {access: asOperator()},
		"ListGroups":        {access: asOperator()},
		"DeleteGroup":       {access: asOperator()},
		"SetGroupPaused":    {access: asOperator()},
		"SeekGroup":         {access: asOperator()},
		"ListPartitions":    {access: asOperator()},
		"GetJob":            {access: asOperator()},
		"ListJobs":          {access: asOperator(), maxPage: 1000},
		"RetryJobs":         {access: asOperator(), size: batchRequest},
		"ListConsumers":     {access: asOperator(), maxPage: 1000},
		"TrimTopic":         {access: asOperator()},
		"ListDeadLetters":   {access: asOperator(), maxPage: 1000},
		"ReplayDeadLetters": {access: asOperator(), size: batchRequest},
		"PurgeDeadLetters":  {access: asOperator(), size: batchRequest},
	},
}
