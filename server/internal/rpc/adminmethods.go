package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// adminMethods is the table of AdminService.
var adminMethods = service{
	name: parleyv1connect.AdminServiceName,
	methods: map[protoreflect.Name]facts{
		"CreateTopic":       {access: asOperator(), queues: true},
		"UpdateTopic":       {access: asOperator(), queues: true},
		"DeleteTopic":       {access: asOperator(), queues: true},
		"GetTopic":          {access: asOperator(), queues: true},
		"ListTopics":        {access: asOperator(), queues: true, maxPage: 1000},
		"PauseTopic":        {access: asOperator(), queues: true},
		"ResumeTopic":       {access: asOperator(), queues: true},
		"GetTopicStats":     {access: asOperator(), queues: true},
		"CreateGroup":       {access: asOperator(), queues: true},
		"DeleteGroup":       {access: asOperator(), queues: true},
		"SeekGroup":         {access: asOperator(), queues: true},
		"ListPartitions":    {access: asOperator(), queues: true},
		"ListPending":       {access: asOperator(), queues: true, maxPage: 1000},
		"TrimTopic":         {access: asOperator(), queues: true},
		"ListDeadLetters":   {access: asOperator(), queues: true, maxPage: 1000},
		"ReplayDeadLetters": {access: asOperator(), queues: true, size: batchRequest},
		"PurgeDeadLetters":  {access: asOperator(), queues: true, size: batchRequest},
	},
}
