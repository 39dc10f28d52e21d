package rpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
)

// messageMethods is the method table of MessageService.
var messageMethods = service{
	name:       parleyv1connect.MessageServiceName,
	rulesFirst: true,
	methods: map[protoreflect.Name]methodRow{
		"SendMessage":   {access: onChannel(ident.Send), size: contentRequest},
		"SendMessages":  {access: perItem(), size: batchRequest, chargeItems: true},
		"ListMessages":  {access: onChannel(ident.History), maxPage: 1000},
		"GetMessage":    {access: onChannel(ident.History)},
		"EditMessage":   {access: onChannel(ident.Send), size: contentRequest},
		"RecallMessage": {access: onChannel(ident.Send, ident.Moderate)},
		"Subscribe": {
			access: onChannel(ident.Subscribe).in("channels.channel_id"), size: batchRequest, reads: true,
			perStream: []protoreflect.Name{"channels"}, requires: subscribeAccess, prepare: prepareSubscribe,
		},
		"UpdateSubscription": {
			access: onChannel(ident.Subscribe).in("add.channel_id"), size: batchRequest,
			perStream: []protoreflect.Name{"add", "remove"},
		},
		"CreateChannel": {access: onChannel(ident.Create), size: batchRequest},
		"GetChannel":    {access: onChannel(ident.History)},
		"UpdateChannel": {access: onChannel(ident.Manage)},
		"DeleteChannel": {access: onChannel(ident.Manage)},
		"AddMembers":    {access: byUseCase(), size: batchRequest}, // users can add themselves to some channels
		"UpdateMember":  {access: onChannel(ident.Manage)},
		"RemoveMembers": {access: byUseCase(), size: batchRequest}, // users can remove themselves
		"ListMembers":   {access: onChannel(ident.History), maxPage: 1000},
		"ListChannels":  {access: byUseCase(), maxPage: 200}, // it returns the channels that the token covers
		"MarkRead":      {access: onChannel(ident.History)},
		"SendTyping":    {access: onChannel(ident.Send)},

		"AppendSessionMessage": {access: onSession(ident.Append), size: batchRequest},
		"AppendSessionDelta":   {access: onSession(ident.Append), size: batchRequest},
		"CloseSessionMessage":  {access: onSession(ident.Append), size: batchRequest},
		"CancelSessionMessage": {access: onSession(ident.Append, ident.Manage)},
		"RenameSession":        {access: onSession(ident.Append, ident.Manage)},
		"ListSessionMessages":  {access: onSession(ident.History), maxPage: 1000},
		"EditSessionMessage":   {access: onSession(ident.Append), size: batchRequest},
		"RecallSessionMessage": {access: onSession(ident.Append)},
		"ListSessions":         {access: byUseCase(), maxPage: 200}, // it returns the sessions that the token covers
		"DeleteSession":        {access: onSession(ident.Append, ident.Manage)},
		"MarkSessionRead":      {access: onSession(ident.History)},
	},
}
