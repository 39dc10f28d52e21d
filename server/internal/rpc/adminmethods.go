package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// adminMethods is the method table of AdminService.
var adminMethods = service{
	name: parleyv1connect.AdminServiceName,
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
		"EraseUser":         {access: asOperator()},
		"GetErasure":        {access: asOperator()},
		"ListErasures":      {access: asOperator(), maxPage: 1000},
		"RevokeTokens":      {access: asOperator()},
		"ListRevocations":   {access: asOperator(), maxPage: 1000},
		"KickUser":          {access: asOperator()},
		"CreateApiKey":      {access: asOperator()},
		"ListApiKeys":       {access: asOperator(), maxPage: maxKeyPage},
		"RotateApiKey":      {access: asOperator()},
		"RevokeApiKey":      {access: asOperator()},
	},
}
