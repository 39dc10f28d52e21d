package rpc

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// Every method of every service of parley.v1 has exactly one row in the method tables, and every
// row has a method.
func TestEveryMethodHasARow(t *testing.T) {
	t.Parallel()
	if errTables != nil {
		t.Fatal(errTables)
	}
	methods := 0
	for _, s := range servicesOf("parley.v1") {
		methods += s.Methods().Len()
	}
	if methods == 0 || len(api.all) != methods || len(api.byProcedure) != methods || len(api.byRequest) != methods {
		t.Errorf("%d methods, and %d rows of %d procedures and %d requests", methods, len(api.all), len(api.byProcedure), len(api.byRequest))
	}
}

// newMethodSet fails for method tables that do not fit the schema.
func TestInvalidMethodTables(t *testing.T) {
	t.Parallel()
	// alter returns a copy of the method tables with one row of MessageService changed. A nil change
	// removes the row.
	alter := func(name protoreflect.Name, change func(*methodRow)) []service {
		s := messageMethods
		s.methods = maps.Clone(s.methods)
		row := s.methods[name]
		delete(s.methods, name)
		if change != nil {
			change(&row)
			s.methods[name] = row
		}
		return []service{s, queueMethods, presenceMethods, adminMethods, serverMethods}
	}
	with := func(a accessRule) func(*methodRow) { return func(f *methodRow) { f.access = a } }
	for want, tables := range map[string][]service{
		"parley.v1.MessageService.GetMessage has no row in the table of its service":    alter("GetMessage", nil),
		"the schema has no method parley.v1.MessageService.Whisper":                     alter("Whisper", with(anyToken())),
		"parley.v1.ServerService has no table of methods":                               {messageMethods, queueMethods, presenceMethods, adminMethods},
		"the schema has no service parley.v1.WhisperService":                            append(alter("GetMessage", with(anyToken())), service{name: "parley.v1.WhisperService"}),
		"parley.v1.ServerService has two tables of methods":                             append(alter("GetMessage", with(anyToken())), serverMethods),
		"MessageService.GetMessage: the row has no access rule":                         alter("GetMessage", with(accessRule{})),
		"MessageService.GetMessage: the access rule has no action":                      alter("GetMessage", with(onChannel())),
		"MessageService.GetMessage: the request has no field topic":                     alter("GetMessage", with(onTopic(ident.Consume))),
		"MessageService.GetMessage: the request has no field channel_id.name":           alter("GetMessage", with(onChannel(ident.Send).in("channel_id.name"))),
		"MessageService.GetMessage: the request has no list of requests":                alter("GetMessage", with(perItem())),
		"MessageService.MarkRead: the request's field seq is not a single string":       alter("MarkRead", with(onChannel(ident.Send).in("seq"))),
		"MessageService.GetMessage: the request has no list members":                    alter("GetMessage", func(f *methodRow) { f.perStream = []protoreflect.Name{"members"} }),
		"MessageService.GetMessage: the request has no list of items to charge":         alter("GetMessage", func(f *methodRow) { f.chargeItems = true }),
		"maxPage 0 does not match the request (has page_size: true)":                    alter("ListMessages", func(f *methodRow) { f.maxPage = 0 }),
		"GetMessage: maxPage 10 does not match the request (has page_size: false)":      alter("GetMessage", func(f *methodRow) { f.maxPage = 10 }),
		"MessageService.Subscribe: the request's field channels is not a single string": alter("Subscribe", with(onChannel(ident.Subscribe).in("channels"))),
		"parley.v1.MessageService.SendTyping has no row in the table of its service":    alter("SendTyping", nil),
		"parley.v1.MessageService.Subscribe: the request has no field channels.topic":   alter("Subscribe", with(onTopic(ident.Consume).in("channels.topic"))),
	} {
		if _, err := newMethodSet(tables, servicesOf("parley.v1")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Each method of MessageService requires its capability, and its refusal names it. A request that
// breaks a rule of the schema is refused for that first, without a check of the token's
// capabilities.
func TestAccessToChannels(t *testing.T) {
	t.Parallel()
	const channel = "lobby"
	rows := map[protoreflect.Name]struct {
		request any
		actions []ident.Action // alternatives, the first is the one that a refusal names; none if the row requires none
		field   string
	}{
		"SendMessage":   {&parleyv1.SendMessageRequest{ChannelId: channel}, []ident.Action{ident.Send}, ""},
		"SendMessages":  {&parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{{ChannelId: channel}}}, nil, ""},
		"ListMessages":  {&parleyv1.ListMessagesRequest{ChannelId: channel}, []ident.Action{ident.History}, ""},
		"GetMessage":    {&parleyv1.GetMessageRequest{ChannelId: channel}, []ident.Action{ident.History}, ""},
		"EditMessage":   {&parleyv1.EditMessageRequest{ChannelId: channel}, []ident.Action{ident.Send}, ""},
		"RecallMessage": {&parleyv1.RecallMessageRequest{ChannelId: channel}, []ident.Action{ident.Send, ident.Moderate}, ""},
		"Subscribe": {
			&parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: "open1"}, {ChannelId: channel}}},
			[]ident.Action{ident.Subscribe},
			"channels[1].channel_id",
		},
		"UpdateSubscription": {
			&parleyv1.UpdateSubscriptionRequest{Add: []*parleyv1.ChannelPosition{{ChannelId: channel}}, Remove: []string{"other"}},
			[]ident.Action{ident.Subscribe},
			"add[0].channel_id",
		},
		"CreateChannel": {&parleyv1.CreateChannelRequest{ChannelId: channel}, []ident.Action{ident.Create, ident.Manage}, ""},
		"GetChannel":    {&parleyv1.GetChannelRequest{ChannelId: channel}, []ident.Action{ident.History}, ""},
		"UpdateChannel": {&parleyv1.UpdateChannelRequest{ChannelId: channel}, []ident.Action{ident.Manage}, ""},
		"DeleteChannel": {&parleyv1.DeleteChannelRequest{ChannelId: channel}, []ident.Action{ident.Manage}, ""},
		"AddMembers":    {&parleyv1.AddMembersRequest{ChannelId: channel}, nil, ""},
		"UpdateMember":  {&parleyv1.UpdateMemberRequest{ChannelId: channel}, []ident.Action{ident.Manage}, ""},
		"RemoveMembers": {&parleyv1.RemoveMembersRequest{ChannelId: channel}, nil, ""},
		"ListMembers":   {&parleyv1.ListMembersRequest{ChannelId: channel}, []ident.Action{ident.History}, ""},
		"ListChannels":  {&parleyv1.ListChannelsRequest{}, nil, ""},
		"MarkRead":      {&parleyv1.MarkReadRequest{ChannelId: channel}, []ident.Action{ident.History}, ""},
		"SendTyping":    {&parleyv1.SendTypingRequest{ChannelId: channel}, []ident.Action{ident.Send}, ""},
	}
	if want := len(messageMethods.methods) - len(sessionRequests); len(rows) != want {
		t.Errorf("%d methods of %d are tested", len(rows), want)
	}
	for name, row := range rows {
		m := api.forProcedure("/" + parleyv1connect.MessageServiceName + "/" + string(name))
		for _, action := range ident.ChannelActions {
			for pattern, covered := range map[string]bool{channel: true, "lob*": true, "lobb": false} {
				err := m.authorize(&ident.Principal{Channels: []ident.Capability{
					{Pattern: pattern, Actions: []ident.Action{action}}, {Pattern: "open1", Actions: ident.ChannelActions},
				}}, row.request)
				allowed := row.actions == nil
				for _, a := range row.actions {
					allowed = allowed || covered && a == action
				}
				asMember := &ident.Principal{Members: []ident.Capability{{Pattern: pattern, Actions: []ident.Action{action}}, {Pattern: "open1", Actions: ident.ChannelActions}}}
				if m.authorize(asMember, row.request) == nil != allowed {
					t.Errorf("%s by membership with %s on %s: refused is %t", name, action, pattern, allowed)
				}
				if allowed {
					if err != nil {
						t.Errorf("%s with %s on %s: %v", name, action, pattern, err)
					}
					continue
				}
				what := "this channel"
				if row.field != "" {
					what = "channel " + channel
				}
				want := `the token has no capability "` + string(row.actions[0]) + `" for ` + what
				if f, ok := fault.As(err); !ok || f.Reason != fault.CapabilityMissing || f.Msg != want || f.Field != row.field {
					t.Errorf("%s with %s on %s: %v, want %s", name, action, pattern, err, want)
				}
			}
		}
	}
}

// sessionRequests holds a request for the session "chat" of each method for sessions, and the
// actions of which the method requires one; none for a method that leaves the check to the domain.
var sessionRequests = map[protoreflect.Name]struct {
	request any
	actions []ident.Action
}{
	"AppendSessionMessage": {&parleyv1.AppendSessionMessageRequest{SessionId: "chat"}, []ident.Action{ident.Append}},
	"AppendSessionDelta":   {&parleyv1.AppendSessionDeltaRequest{SessionId: "chat"}, []ident.Action{ident.Append}},
	"CloseSessionMessage":  {&parleyv1.CloseSessionMessageRequest{SessionId: "chat"}, []ident.Action{ident.Append}},
	"CancelSessionMessage": {&parleyv1.CancelSessionMessageRequest{SessionId: "chat"}, []ident.Action{ident.Append, ident.Manage}},
	"ListSessionMessages":  {&parleyv1.ListSessionMessagesRequest{SessionId: "chat"}, []ident.Action{ident.History}},
	"EditSessionMessage":   {&parleyv1.EditSessionMessageRequest{SessionId: "chat"}, []ident.Action{ident.Append}},
	"RecallSessionMessage": {&parleyv1.RecallSessionMessageRequest{SessionId: "chat"}, []ident.Action{ident.Append}},
	"RenameSession":        {&parleyv1.RenameSessionRequest{SessionId: "chat"}, []ident.Action{ident.Append, ident.Manage}},
	"ListSessions":         {&parleyv1.ListSessionsRequest{}, nil},
	"DeleteSession":        {&parleyv1.DeleteSessionRequest{SessionId: "chat"}, []ident.Action{ident.Append, ident.Manage}},
	"MarkSessionRead":      {&parleyv1.MarkSessionReadRequest{SessionId: "chat"}, []ident.Action{ident.History}},
}

// Each method for sessions requires its action in a capability on sessions. Capabilities on
// channels do not count.
func TestAccessToSessions(t *testing.T) {
	t.Parallel()
	for name, row := range sessionRequests {
		m := api.forProcedure("/" + parleyv1connect.MessageServiceName + "/" + string(name))
		if row.actions == nil {
			if err := m.authorize(&ident.Principal{}, row.request); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		refusal := `the token has no capability "` + string(row.actions[0]) + `" for this session`
		for _, action := range ident.SessionActions {
			for pattern, covered := range map[string]bool{"chat": true, "ch*": true, "*": true, "cha": false, "~chat": false} {
				err := m.authorize(&ident.Principal{Sessions: []ident.Capability{{Pattern: pattern, Actions: []ident.Action{action}}}}, row.request)
				f, ok := fault.As(err)
				if (err == nil) != (covered && slices.Contains(row.actions, action)) || err != nil && (!ok || f.Reason != fault.CapabilityMissing || f.Msg != refusal) {
					t.Errorf("%s with %s on %s: %v", name, action, pattern, err)
				}
			}
		}
		everyChannel := []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}, {Pattern: "chat", Actions: ident.SessionActions}}
		if m.authorize(&ident.Principal{Channels: everyChannel, Members: everyChannel}, row.request) == nil {
			t.Errorf("%s is allowed by a capability on channels", name)
		}
	}
}

// MessageService reports a broken rule before a missing capability. An item of a batch gets the
// same error as a call of its own.
func TestMessageServiceRefusalOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, nil) // its fakes panic
	token := b.mintAs(&ident.Principal{Subject: "eve", Channels: []ident.Capability{{Pattern: "hall", Actions: ident.ChannelActions}}})
	for i, p := range protocols {
		c, ctx := b.client(i, token), t.Context()
		for want, err := range map[string]error{
			`invalid_argument INVALID_FIELD "content" 1`:  second(c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "lobby"})),
			`permission_denied CAPABILITY_MISSING "" 0`:   second(c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "lobby", MsgId: "m"})),
			`invalid_argument INVALID_FIELD "msg_id" 0`:   second(c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "lobby", MsgId: "?"})),
			`invalid_argument INVALID_FIELD "user_ids" 1`: second(c.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: "lobby"})),
		} {
			if got := refusedAs(t, err); got != want {
				t.Errorf("%s: %s, want %s", p.name, got, want)
			}
		}
	}
	b.messages.batch = func(_ context.Context, rs []message.SendRequest) []message.SendOutcome {
		if len(rs) > 0 {
			t.Errorf("%d items that are refused are sent", len(rs))
		}
		return nil
	}
	resp, err := b.client(1, token).SendMessages(t.Context(), &parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{
		{ChannelId: "lobby", Content: "x"}, {ChannelId: "lobby"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []parleyv1.ErrorReason{parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING, parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD} {
		if got := resp.GetResults()[i].GetError(); got.GetDetail().GetReason() != want {
			t.Errorf("item %d: %v, want %v", i, got, want)
		}
	}
}
