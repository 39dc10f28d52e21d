package server_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Hostile input about channels, members, read cursors and typing, and the answers of a members-only
// channel to non-members. Channel ids are tested with message ids in hostile_message_test.go; valid
// user ids that look odd are in hostile_member_test.go.

// badUserIDs are invalid user ids.
var badUserIDs = map[string]string{
	"empty": "", "a space": "a b", "a space before": " bob", "a newline at the end": "bob\n", "a command": "a\r\nPUB x 1", "a tab": "a\tb",
	"NUL": "bo\x00b", "an escape for a terminal": "a\x1b[31m", "BEL": "a\x07", "DEL": "a\x7f", "not ASCII": "ünal",
	"right to left": "\u202ebob", "zero width": "bob\u200b", "129 letters": strings.Repeat("a", 129), "1 KiB": strings.Repeat("a", 1<<10),
}

// memberCalls build requests for the calls that take user ids.
var memberCalls = map[string]func(channel string, userIDs ...string) proto.Message{
	createChannel: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true, Members: membersOf(userIDs...)}
	},
	addMembers: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.AddMembersRequest{ChannelId: channel, Members: membersOf(userIDs...)}
	},
	removeMembers: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: userIDs}
	},
}

// membersOf returns channel members with these user ids.
func membersOf(userIDs ...string) []*parleyv1.ChannelMember {
	members := make([]*parleyv1.ChannelMember, len(userIDs))
	for i, id := range userIDs {
		members[i] = &parleyv1.ChannelMember{UserId: id}
	}
	return members
}

// numbered returns n different user ids.
func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "u" + strconv.Itoa(i)
	}
	return ids
}

// memberList describes how a call names users: as members, or by user id only.
type memberList struct {
	// field is the name of the request's list. user is what follows an item's index in the path of
	// its user id; it may be empty.
	field, user string
	// tag is the encoded tag of the list field: its field number and wire type.
	tag string
	// json and binary write an item from a user id that is already quoted or encoded.
	json, binary func(id string) string
}

func listOf(procedure string) *memberList {
	l := &memberList{
		field: "members", user: ".user_id", tag: "\x12",
		json:   func(id string) string { return `{"user_id":` + id + `}` },
		binary: func(id string) string { return string(protowire.AppendBytes(nil, []byte("\x0a"+id))) },
	}
	switch procedure {
	case createChannel:
		l.tag = "\x1a"
	case removeMembers:
		l.field, l.user = "user_ids", ""
		l.json, l.binary = func(id string) string { return id }, func(id string) string { return id }
	}
	return l
}

// userLines returns requests with bad user ids, singly and in lists. They name the channel
// `closed`, which exists, or `fresh`, which must never be created.
func userLines() []line {
	var lines []line
	for procedure, request := range memberCalls {
		channel := "closed"
		if procedure == createChannel {
			channel = "fresh"
		}
		list := listOf(procedure)
		second := invalid(list.field + "[1]" + list.user)
		add := func(name string, w want, userIDs ...string) {
			lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: request(channel, userIDs...), want: w})
		}
		for name, id := range badUserIDs {
			add("user id: "+name, second, "alice", id)
		}
		add("501 user ids", over(list.field, 500), numbered(501)...)
		add("501 times one user id", over(list.field, 500), strings.Split(strings.Repeat("alice ", 501), " ")[:501]...)
		add("10,001 user ids", over(list.field, 500), numbered(10_001)...)
		add("24,000 user ids of nothing", over(list.field, 500), make([]string, 24_000)...)
		if procedure != createChannel { // CreateChannel may create a channel with its creator as the only member
			add("no user ids", over(list.field, 1))
		}
		head := "\x0a" + string(rune(len(channel))) + channel
		body := func(name, json, binary string, w want) {
			lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, json: json, binary: binary, want: w})
		}
		start := `{"channel_id":"` + channel + `","` + list.field + `":`
		broken, large := refused("invalid_argument"), refused("resource_exhausted")
		alice, nothing := list.json(`"alice"`), list.json(`""`)
		body("a million user ids of nothing", start+`[`+nothing+strings.Repeat(","+nothing, 100_000)+`]}`, head+strings.Repeat(list.tag+"\x00", 1_000_000), large)
		body("user ids of 3 MiB", start+`[`+list.json(`"`+strings.Repeat("a", 3<<20)+`"`)+`]}`, head+list.tag+list.binary("\x80\x80\xc0\x01"+strings.Repeat("a", 3<<20)), large)
		body("a user id that is no UTF-8", start+"["+list.json("\"\xff\"")+"]}", head+list.tag+list.binary("\x01\xff"), broken)
		body("a lone surrogate", start+`[`+list.json(`"\ud800"`)+`]}`, "", broken)
		body("a word for user ids", start+`"alice"}`, "", broken)
		body("a number for a user id", start+`[`+alice+`,`+list.json("5")+`]}`, "", broken)
		body("null for an item", start+`[`+alice+`,null]}`, "", broken)
		body("a query for user ids", start+`{"$ne":""}}`, "", broken)
		body("a query for a user id", start+`[`+list.json(`{"$gt":""}`)+`]}`, "", broken)
		body("NUL in JSON's escape", start+`[`+alice+`,`+list.json(`"a\u0000b"`)+`]}`, "", second)
	}
	role := `{"channel_id":"closed","members":[{"user_id":"mallory","role":`
	return append(lines,
		line{name: "a word for members_only", procedure: createChannel, json: `{"channel_id":"fresh","members_only":"yes"}`, want: refused("invalid_argument")},
		line{name: "user ids where members are wanted", procedure: createChannel, json: `{"channel_id":"fresh","user_ids":["alice"]}`, want: unknownField("user_ids")},
		line{name: "members where user ids are wanted", procedure: removeMembers, json: `{"channel_id":"closed","members":[{"user_id":"alice"}]}`, want: unknownField("members")},
		line{name: "a query for a member", procedure: addMembers, json: `{"channel_id":"closed","members":[{"$gt":""}]}`, want: unknownField("members[0].$gt")},
		line{name: "null for a member's user id", procedure: addMembers, json: `{"channel_id":"closed","members":[{"user_id":null}]}`, want: invalid("members[0].user_id")},
		line{name: "a role that there is not", procedure: addMembers, json: role + `"MEMBER_ROLE_OWNER"}]}`, want: invalid("members[0].role")},
		line{name: "role 9", procedure: addMembers, message: &parleyv1.AddMembersRequest{ChannelId: "closed", Members: []*parleyv1.ChannelMember{{UserId: "mallory", Role: 9}}}, want: invalid("members[0].role")},
		line{name: "role 2^31", procedure: addMembers, json: role + `2147483648}]}`, want: refused("invalid_argument")},
	)
}

// keyLines returns CreateChannel requests with bad idempotency keys.
func keyLines() []line {
	var lines []line
	for name, key := range map[string]string{
		"of 1 KiB": strings.Repeat("k", 1<<10), "of 129 letters": strings.Repeat("k", 129), "with a newline": "a\nb", "that ends with a newline": "a\n",
		"with a space": "a b", "not ASCII": "schlüssel", "NUL": "a\x00b", "with an escape": "\x1b[31m",
	} {
		lines = append(lines, line{
			name: "idempotency_key " + name, procedure: createChannel, message: &parleyv1.CreateChannelRequest{ChannelId: "fresh", IdempotencyKey: key},
			want: invalid("idempotency_key"),
		})
	}
	return lines
}

// pageLines returns requests with bad page tokens, page sizes and read positions. The tokens
// continue lists of the subject tester with page size 1: the members of `long`, the tester's
// channels, and the messages of `long`.
func pageLines(g *target, membersToken, mineToken, messagesToken string) []line {
	type members = parleyv1.ListMembersRequest
	type mine = parleyv1.ListChannelsRequest
	bob := g.Mint("bob", ident.History)
	foreign := want{code: "permission_denied", reason: "PAGE_TOKEN_FOREIGN", field: "page_token"}
	token := want{code: "invalid_argument", reason: "PAGE_TOKEN_INVALID", field: "page_token"}
	var lines []line
	add := func(name, procedure string, m proto.Message, w want) {
		lines = append(lines, line{name: name + " of " + procedure, procedure: procedure, message: m, want: w})
	}
	for _, page := range []struct {
		procedure, token, other string
		request                 func(size int32, token string) proto.Message
	}{
		{listMembers, membersToken, mineToken, func(size int32, token string) proto.Message {
			return &members{ChannelId: "long", PageSize: size, PageToken: token}
		}},
		{listChannels, mineToken, membersToken, func(size int32, token string) proto.Message {
			return &mine{PageSize: size, PageToken: token}
		}},
	} {
		add("page_size below 0", page.procedure, page.request(-1, ""), invalid("page_size"))
		add("the least page_size", page.procedure, page.request(math.MinInt32, ""), invalid("page_size"))
		for at := 0; at < len(page.token); at += 17 {
			add("page token with letter "+strconv.Itoa(at)+" changed", page.procedure, page.request(1, swapped(page.token, at)), token)
		}
		add("page token with its last letter changed", page.procedure, page.request(1, swapped(page.token, len(page.token)-1)), token)
		add("page token that is cut", page.procedure, page.request(1, page.token[:len(page.token)-4]), token)
		add("page token that is longer", page.procedure, page.request(1, page.token+"AAAA"), token)
		add("page token with padding", page.procedure, page.request(1, page.token+"="), token)
		add("page token with a newline", page.procedure, page.request(1, page.token+"\n"), token)
		add("page token that is none", page.procedure, page.request(1, `{"$gt":""}`), token)
		add("page token of the other list", page.procedure, page.request(1, page.other), token)
		add("page token of messages", page.procedure, page.request(1, messagesToken), token)
		add("page token of 1,025 letters", page.procedure, page.request(1, strings.Repeat("a", 1025)), over("page_token", 1024))
		add("page token of 100 KiB", page.procedure, page.request(1, strings.Repeat("a", 100<<10)), refused("resource_exhausted"))
		add("NUL in a page token", page.procedure, page.request(1, "\x00"), invalid("page_token"))
		lines = append(lines, line{
			name: "page token of another subject of " + page.procedure, procedure: page.procedure, message: page.request(1, page.token), token: bob, want: foreign,
		})
	}
	add("page token of another channel", listMembers, &members{ChannelId: "closed", PageSize: 1, PageToken: membersToken}, token)
	add("page token of members", listMessages, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1, PageToken: membersToken}, token)
	add("page token of channels", listMessages, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1, PageToken: mineToken}, token)
	// A page token grants nothing in a channel that the caller has lost.
	lines = append(lines, line{
		name: "page token of a members-only channel, for a stranger", procedure: listMembers, token: bob, want: stranger,
		message: &members{ChannelId: "closed", PageSize: 1, PageToken: membersToken},
	})

	mark := func(name, channel string, seq int64, w want) {
		add(name, markRead, &parleyv1.MarkReadRequest{ChannelId: channel, Seq: seq}, w)
	}
	beyond := func(head int64) want {
		return want{code: "out_of_range", reason: "POSITION_OUT_OF_RANGE", field: "seq", limit: head}
	}
	mark("seq 0", "long", 0, over("seq", 1))
	mark("seq below 0", "long", -1, over("seq", 1))
	mark("the least seq", "long", math.MinInt64, over("seq", 1))
	mark("one beyond the end", "long", 4, beyond(3))
	mark("the largest seq", "long", math.MaxInt64, beyond(3))
	mark("beyond the end of a members-only channel", "closed", 2, beyond(1))
	mark("in a channel without messages", "nobody-writes-here", 1, beyond(0))
	for name, seq := range map[string]string{
		"seq of 2^63": `"9223372036854775808"`, "half a seq": "1.5", "NaN": "NaN", "NaN as text": `"NaN"`, "a list": "[1]", "a word": `"last"`, "true": "true",
	} {
		lines = append(lines, line{
			name: "" + name + " to MarkRead", procedure: markRead, json: `{"channel_id":"long","seq":` + seq + `}`, want: refused("invalid_argument"),
		})
	}
	return lines
}

// swapped changes one letter of a token.
func swapped(token string, at int) string {
	other := "A"
	if token[at] == 'A' {
		other = "B"
	}
	return token[:at] + other + token[at+1:]
}

// stranger is the answer that a non-member gets about a members-only channel.
var stranger = want{code: "permission_denied", reason: "NOT_MEMBER"}

// nonMemberLines returns the attempts of bob, who has every capability but `manage` and is not a
// member of `closed`. msgID is a message in `closed`.
func nonMemberLines(g *target, msgID string) []line {
	everything := []ident.Action{ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs}
	bob := g.Mint("bob", everything...)
	at := func(field string) want { w := stranger; w.field = field; return w }
	positions := []*parleyv1.ChannelPosition{live("room"), live("closed")}
	as := func(from string) *parleyv1.SendMessageRequest {
		return &parleyv1.SendMessageRequest{ChannelId: "closed", Content: "this must not be stored", FromId: from}
	}
	lines := []line{
		{name: "send", message: as(""), want: stranger},
		{name: "send as a member", message: as("alice"), want: stranger},
		{name: "send as who manages", message: as("tester"), want: stranger},
		{name: "list", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "closed"}, want: stranger},
		{name: "list beyond the end", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "closed", AfterSeq: proto.Int64(99)}, want: stranger},
		{name: "get", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "closed", MsgId: msgID}, want: stranger},
		{name: "get what is not there", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "closed", MsgId: "nothing"}, want: stranger},
		{name: "edit", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "closed", MsgId: msgID, Content: "x"}, want: stranger},
		{name: "recall", procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: "closed", MsgId: msgID}, want: stranger},
		{name: "subscribe", procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: positions}, want: at("channels[1].channel_id")},
		{name: "subscribe from the beginning", procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("closed", 0)}}, want: at("channels[0].channel_id")},
		{name: "add to a stream that is not there", procedure: updating, message: &parleyv1.UpdateSubscriptionRequest{StreamId: "nothing", Add: positions}, want: at("add[1].channel_id")},
		{name: "list members", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "closed"}, want: stranger},
		{name: "mark read", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 1}, want: stranger},
		{name: "mark read beyond the end", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 99}, want: stranger},
		{name: "type", procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "closed"}, want: stranger},
		{name: "add himself", procedure: addMembers, message: memberCalls[addMembers]("closed", "bob"), want: stranger},
		{name: "add himself twice", procedure: addMembers, message: memberCalls[addMembers]("closed", "bob", "bob"), want: stranger},
	}
	for i := range lines {
		lines[i].name += ", by a stranger"
		lines[i].token = bob
	}
	// A subject that may manage need not be a member, but then has no read cursor.
	return append(lines, line{
		name: "mark read, by who only manages", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 1},
		token: g.Mint("warden", append(everything, ident.Manage)...), want: stranger,
	})
}

// keyed returns a request with an idempotency key.
func keyed() *parleyv1.CreateChannelRequest {
	return &parleyv1.CreateChannelRequest{ChannelId: "keyed", MembersOnly: true, Members: membersOf("alice"), IdempotencyKey: "the-key"}
}

// manageLines returns calls without the capability that they require, and calls about channels that
// exist already or do not exist.
func manageLines(g *target) []line {
	missing := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
	taken := want{code: "already_exists", reason: "CHANNEL_EXISTS", field: "channel_id"}
	none := want{code: "not_found", reason: "CHANNEL_NOT_FOUND", field: "channel_id"}
	bob := g.Mint("bob", ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs)
	reader, writer := g.Mint("bob", ident.History), g.Mint("bob", ident.Send)
	warden := g.Mint("warden", ident.Manage)
	create := func(channel string, membersOnly bool) *parleyv1.CreateChannelRequest {
		return &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: membersOnly, Members: membersOf("mallory"), IdempotencyKey: "the-key"}
	}
	reused := want{code: "already_exists", reason: "IDEMPOTENCY_KEY_REUSED", field: "idempotency_key"}
	return []line{
		{name: "a name that a send took", procedure: createChannel, message: create("room", true), want: taken},
		{name: "a name that a send took, as open", procedure: createChannel, message: create("room", false), want: taken},
		{name: "a name of a members-only channel", procedure: createChannel, message: create("closed", false), want: taken},
		{name: "a name of a members-only channel, by another", procedure: createChannel, message: create("closed", true), token: warden, want: taken},
		{name: "a key that was used with other members", procedure: createChannel, message: create("keyed", true), want: reused},
		{name: "a key that was used for another kind", procedure: createChannel, message: &parleyv1.CreateChannelRequest{ChannelId: "keyed", IdempotencyKey: "the-key"}, want: reused},
		{name: "a key that another used", procedure: createChannel, message: keyed(), token: warden, want: taken},
		{name: "create without manage", procedure: createChannel, message: create("fresh", true), token: bob, want: missing},
		{name: "create over a channel without manage", procedure: createChannel, message: create("room", true), token: bob, want: missing},
		{name: "add another without manage", procedure: addMembers, message: memberCalls[addMembers]("room", "mallory"), token: bob, want: missing},
		{name: "add oneself and another", procedure: addMembers, message: memberCalls[addMembers]("room", "bob", "mallory"), token: bob, want: missing},
		{name: "add oneself without subscribe", procedure: addMembers, message: memberCalls[addMembers]("room", "bob"), token: reader, want: missing},
		{name: "add who is called otherwise", procedure: addMembers, message: memberCalls[addMembers]("room", "Bob"), token: bob, want: missing},
		{name: "remove another without manage", procedure: removeMembers, message: memberCalls[removeMembers]("room", "tester"), token: bob, want: missing},
		{name: "remove oneself and another", procedure: removeMembers, message: memberCalls[removeMembers]("closed", "bob", "alice"), token: bob, want: missing},
		{name: "list members without history", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "room"}, token: writer, want: missing},
		{name: "list members with manage alone", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "room"}, token: warden, want: missing},
		{name: "mark read without history", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "room", Seq: 1}, token: writer, want: missing},
		{name: "type without send", procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "room"}, token: reader, want: missing},
		{name: "add oneself to nothing", procedure: addMembers, message: memberCalls[addMembers]("nothing", "bob"), token: bob, want: none},
		{name: "add to nothing", procedure: addMembers, message: memberCalls[addMembers]("nothing", "bob"), want: none},
		{name: "remove from nothing", procedure: removeMembers, message: memberCalls[removeMembers]("nothing", "bob"), want: none},
	}
}

func TestHostileChannels(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	c := g.tester()
	if _, err := c.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: "closed", MembersOnly: true, Members: membersOf("alice")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateChannel(t.Context(), keyed()); err != nil {
		t.Fatal(err)
	}
	secret := send(t, c, "closed", "secret").GetMsgId()
	for range 3 {
		send(t, c, "long", "x")
	}
	if _, err := c.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: "long", Members: membersOf("alice", "carol")}); err != nil {
		t.Fatal(err)
	}
	g.settle("closed", "long")
	members, err := c.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: "long", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := c.ListChannels(t.Context(), &parleyv1.ListChannelsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	messages := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1})
	g.run(userLines())
	g.run(keyLines())
	g.run(pageLines(g, members.GetNextPageToken(), mine.GetNextPageToken(), messages.GetNextPageToken()))
	g.run(nonMemberLines(g, secret))
	g.run(manageLines(g))
	// Refused calls created no channel that the tester can't see.
	for _, channel := range []string{"fresh", "nothing", "nobody-writes-here"} {
		if _, err := c.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel}); err != nil {
			t.Errorf("%s is taken: %v", channel, err)
		}
	}
}
