package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
)

// queueElements bounds the fields and values of one Produce or Schedule request. It admits the
// largest batch that the schema allows: a header is a field with two values, and a scheduled
// message has 8 fields and values besides its headers.
var queueElements = func() int {
	batch := rulesOf((&parleyv1.ScheduleRequest{}).ProtoReflect().Descriptor(), "messages").GetRepeated().GetMaxItems()
	headers := rulesOf((&parleyv1.QueueMessage{}).ProtoReflect().Descriptor(), "headers").GetMap().GetMaxPairs()
	return int(batch * (3*headers + 10))
}()

// queueMethods is the method table of QueueService.
var queueMethods = service{
	name: parleyv1connect.QueueServiceName,
	methods: map[protoreflect.Name]methodRow{
		"Produce": {
			access: onTopic(ident.Produce), size: batchRequest, maxElements: queueElements, chargeItems: true,
			uncompressed: true,
		},
		"Schedule": {
			access: onTopic(ident.Produce), size: batchRequest, maxElements: queueElements, chargeItems: true,
			uncompressed: true,
		},
		"CancelScheduled":     {access: onTopic(ident.Produce)},
		"RescheduleScheduled": {access: onTopic(ident.Produce)},
		"Consume":             {access: onTopic(ident.Consume)},
		"StreamingConsume":    {access: onTopic(ident.Consume).in("start.topic"), size: batchRequest},
		"Ack":                 {access: onTopic(ident.Consume), size: batchRequest, settles: true, uncompressed: true},
		"Nack":                {access: onTopic(ident.Consume), size: batchRequest, settles: true, uncompressed: true},
		"Extend":              {access: onTopic(ident.Consume), size: batchRequest, settles: true},
		"GrantCredits":        {access: onTopic(ident.Consume)},
		"Leave":               {access: onTopic(ident.Consume), settles: true},
	},
}
