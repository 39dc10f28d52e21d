package server_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

// The M lines of hostile input about channels, members, read cursors and typing, and P22: what a members-only channel
// says to who is none of its members. Ids of channels stand with those of messages, in hostile_message_test.go; user ids
// that look odd and are good ones in hostile_member_test.go.

// badUserIDs are no ids of users.
var badUserIDs = map[string]string{
	"empty": "", "a space": "a b", "a space before": " bob", "a newline at the end": "bob\n", "a command": "a\r\nPUB x 1", "a tab": "a\tb",
	"NUL": "bo\x00b", "P04 an escape for a terminal": "a\x1b[31m", "P04 BEL": "a\x07", "DEL": "a\x7f", "not ASCII": "ünal",
	"M13 right to left": "\u202ebob", "M13 zero width": "bob\u200b", "129 letters": strings.Repeat("a", 129), "1 KiB": strings.Repeat("a", 1<<10),
}

// memberCalls are the calls that take user ids.
var memberCalls = map[string]func(channel string, userIDs ...string) proto.Message{
	createChannel: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true, UserIds: userIDs}
	},
	addMembers: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.AddMembersRequest{ChannelId: channel, UserIds: userIDs}
	},
	removeMembers: func(channel string, userIDs ...string) proto.Message {
		return &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: userIDs}
	},
}

// numbered gives n user ids.
func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "u" + strconv.Itoa(i)
	}
	return ids
}

// userLines are about user ids, one by one and all together. `closed` has members to take off; `fresh` must never be.
func userLines() []line {
	var lines []line
	for procedure, request := range memberCalls {
		channel := "closed"
		if procedure == createChannel {
			channel = "fresh"
		}
		add := func(name string, w want, userIDs ...string) {
			lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: request(channel, userIDs...), want: w})
		}
		for name, id := range badUserIDs {
			add("user id: "+name, invalid("user_ids[1]"), "alice", id)
		}
		add("501 user ids", over("user_ids", 500), numbered(501)...)
		add("501 times one user id", over("user_ids", 500), strings.Split(strings.Repeat("alice ", 501), " ")[:501]...)
		add("P16 10,001 user ids", over("user_ids", 500), numbered(10_001)...)
		add("49,000 user ids of nothing", over("user_ids", 500), make([]string, 49_000)...)
		if procedure != createChannel { // which may make a channel of its maker alone
			add("P15 no user ids", over("user_ids", 1))
		}
		tag := "\x12" // the field's number and kind
		if procedure == createChannel {
			tag = "\x1a"
		}
		head := "\x0a" + string(rune(len(channel))) + channel
		body := func(name, json, binary string, w want) {
			lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, json: json, binary: binary, want: w})
		}
		start := `{"channel_id":"` + channel + `","user_ids":`
		broken := refused("invalid_argument")
		body("a million user ids of nothing", start+`[""`+strings.Repeat(`,""`, 600_000)+`]}`, head+strings.Repeat(tag+"\x00", 1_000_000), broken)
		body("user ids of 3 MiB", start+`["`+strings.Repeat("a", 3<<20)+`"]}`, head+tag+"\x80\x80\xc0\x01"+strings.Repeat("a", 3<<20), refused("resource_exhausted"))
		body("C10 a user id that is no UTF-8", start+"[\"\xff\"]}", head+tag+"\x01\xff", broken)
		body("C10 a lone surrogate", start+`["\ud800"]}`, "", broken)
		body("C05 a word for user ids", start+`"alice"}`, "", broken)
		body("C05 a number for a user id", start+`["alice",5]}`, "", broken)
		body("C05 null for a user id", start+`["alice",null]}`, "", broken)
		body("a query for user ids", start+`{"$ne":""}}`, "", broken)
		body("a query for a user id", start+`[{"$gt":""}]}`, "", broken)
		body("C17 NUL in JSON's escape", start+`["alice","a\u0000b"]}`, "", invalid("user_ids[1]"))
	}
	return append(lines, line{
		name: "C05 a word for members_only", procedure: createChannel, json: `{"channel_id":"fresh","members_only":"yes"}`, want: refused("invalid_argument"),
	})
}

// pageLines are about pages and places. The tokens continue lists of the subject tester, each with pages of one: of the
// members of `long`, of his channels, of the messages of `long`.
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
		largest                 int64
		request                 func(size int32, token string) proto.Message
	}{
		{listMembers, membersToken, mineToken, 1000, func(size int32, token string) proto.Message {
			return &members{ChannelId: "long", PageSize: size, PageToken: token}
		}},
		{listChannels, mineToken, membersToken, 200, func(size int32, token string) proto.Message {
			return &mine{PageSize: size, PageToken: token}
		}},
	} {
		add("M28 page_size of 10^9", page.procedure, page.request(1e9, ""), over("page_size", page.largest))
		add("page_size one over", page.procedure, page.request(int32(page.largest)+1, ""), over("page_size", page.largest))
		add("page_size below 0", page.procedure, page.request(-1, ""), invalid("page_size"))
		add("the least page_size", page.procedure, page.request(math.MinInt32, ""), invalid("page_size"))
		for at := 0; at < len(page.token); at += 17 {
			add("M29 page token with letter "+strconv.Itoa(at)+" changed", page.procedure, page.request(1, swapped(page.token, at)), token)
		}
		add("M29 page token with its last letter changed", page.procedure, page.request(1, swapped(page.token, len(page.token)-1)), token)
		add("M29 page token that is cut", page.procedure, page.request(1, page.token[:len(page.token)-4]), token)
		add("M29 page token that is longer", page.procedure, page.request(1, page.token+"AAAA"), token)
		add("M29 page token with padding", page.procedure, page.request(1, page.token+"="), token)
		add("M29 page token with a newline", page.procedure, page.request(1, page.token+"\n"), token)
		add("M29 page token that is none", page.procedure, page.request(1, `{"$gt":""}`), token)
		add("M29 page token of the other list", page.procedure, page.request(1, page.other), token)
		add("M29 page token of messages", page.procedure, page.request(1, messagesToken), token)
		add("page token of 1,025 letters", page.procedure, page.request(1, strings.Repeat("a", 1025)), over("page_token", 1024))
		add("page token of 100 KiB", page.procedure, page.request(1, strings.Repeat("a", 100<<10)), refused("resource_exhausted"))
		add("C17 NUL in a page token", page.procedure, page.request(1, "\x00"), invalid("page_token"))
		lines = append(lines, line{
			name: "M37 page token of another subject of " + page.procedure, procedure: page.procedure, message: page.request(1, page.token), token: bob, want: foreign,
		})
	}
	add("M29 page token of another channel", listMembers, &members{ChannelId: "closed", PageSize: 1, PageToken: membersToken}, token)
	add("M29 page token of members", listMessages, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1, PageToken: membersToken}, token)
	add("M29 page token of channels", listMessages, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1, PageToken: mineToken}, token)
	// In a channel that has been lost a token opens nothing.
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
	mark("M41 one beyond the end", "long", 4, beyond(3))
	mark("M41 the largest seq", "long", math.MaxInt64, beyond(3))
	mark("M41 beyond the end of a members-only channel", "closed", 2, beyond(1))
	mark("M41 in a channel without messages", "nobody-writes-here", 1, beyond(0))
	for name, seq := range map[string]string{
		"seq of 2^63": `"9223372036854775808"`, "half a seq": "1.5", "NaN": "NaN", "NaN as text": `"NaN"`, "a list": "[1]", "a word": `"last"`, "true": "true",
	} {
		lines = append(lines, line{
			name: "C05 " + name + " to MarkRead", procedure: markRead, json: `{"channel_id":"long","seq":` + seq + `}`, want: refused("invalid_argument"),
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

// stranger is what a members-only channel says to who is no member.
var stranger = want{code: "permission_denied", reason: "NOT_MEMBER"}

// strangerLines are what bob tries who may do anything by his token but `manage`, and is no member of `closed`. The
// message is in it.
func strangerLines(g *target, msgID string) []line {
	everything := []ident.Action{ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs}
	bob := g.Mint("bob", everything...)
	at := func(field string) want { w := stranger; w.field = field; return w }
	positions := []*parleyv1.ChannelPosition{live("room"), live("closed")}
	as := func(from string) *parleyv1.SendMessageRequest {
		return &parleyv1.SendMessageRequest{ChannelId: "closed", Content: "this must not be stored", FromId: from}
	}
	lines := []line{
		{name: "M35 send", message: as(""), want: stranger},
		{name: "M35 send as a member", message: as("alice"), want: stranger},
		{name: "M35 send as who manages", message: as("tester"), want: stranger},
		{name: "M35 list", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "closed"}, want: stranger},
		{name: "M35 list beyond the end", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "closed", AfterSeq: proto.Int64(99)}, want: stranger},
		{name: "M35 get", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "closed", MsgId: msgID}, want: stranger},
		{name: "M35 get what is not there", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "closed", MsgId: "nothing"}, want: stranger},
		{name: "M35 edit", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "closed", MsgId: msgID, Content: "x"}, want: stranger},
		{name: "M35 recall", procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: "closed", MsgId: msgID}, want: stranger},
		{name: "M35 subscribe", procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: positions}, want: at("channels[1].channel_id")},
		{name: "M35 subscribe from the beginning", procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("closed", 0)}}, want: at("channels[0].channel_id")},
		{name: "M35 add to a stream that is not there", procedure: updating, message: &parleyv1.UpdateSubscriptionRequest{SessionId: "nothing", Add: positions}, want: at("add[1].channel_id")},
		{name: "M35 list members", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "closed"}, want: stranger},
		{name: "M35 mark read", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 1}, want: stranger},
		{name: "M35 mark read beyond the end", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 99}, want: stranger},
		{name: "P22 type", procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "closed"}, want: stranger},
		{name: "add himself", procedure: addMembers, message: memberCalls[addMembers]("closed", "bob"), want: stranger},
		{name: "add himself twice", procedure: addMembers, message: memberCalls[addMembers]("closed", "bob", "bob"), want: stranger},
	}
	for i := range lines {
		lines[i].name += ", by a stranger"
		lines[i].token = bob
	}
	// Who may manage need not be a member, but has no cursor then.
	return append(lines, line{
		name: "mark read, by who only manages", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "closed", Seq: 1},
		token: g.Mint("warden", append(everything, ident.Manage)...), want: stranger,
	})
}

// manageLines are about what wants a capability, and about channels that are there or not.
func manageLines(g *target) []line {
	missing := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
	taken := want{code: "already_exists", reason: "CHANNEL_EXISTS", field: "channel_id"}
	none := want{code: "not_found", reason: "CHANNEL_NOT_FOUND", field: "channel_id"}
	bob := g.Mint("bob", ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs)
	reader, writer := g.Mint("bob", ident.History), g.Mint("bob", ident.Send)
	warden := g.Mint("warden", ident.Manage)
	create := func(channel string, membersOnly bool) *parleyv1.CreateChannelRequest {
		return &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: membersOnly, UserIds: []string{"mallory"}}
	}
	return []line{
		{name: "M40 a name that a send took", procedure: createChannel, message: create("room", true), want: taken},
		{name: "M40 a name that a send took, as open", procedure: createChannel, message: create("room", false), want: taken},
		{name: "M40 a name of a members-only channel", procedure: createChannel, message: create("closed", false), want: taken},
		{name: "M40 a name of a members-only channel, by another", procedure: createChannel, message: create("closed", true), token: warden, want: taken},
		{name: "C62 create without manage", procedure: createChannel, message: create("fresh", true), token: bob, want: missing},
		{name: "C62 create over a channel without manage", procedure: createChannel, message: create("room", true), token: bob, want: missing},
		{name: "C62 add another without manage", procedure: addMembers, message: memberCalls[addMembers]("room", "mallory"), token: bob, want: missing},
		{name: "C62 add oneself and another", procedure: addMembers, message: memberCalls[addMembers]("room", "bob", "mallory"), token: bob, want: missing},
		{name: "C62 add oneself without subscribe", procedure: addMembers, message: memberCalls[addMembers]("room", "bob"), token: reader, want: missing},
		{name: "C62 add who is called otherwise", procedure: addMembers, message: memberCalls[addMembers]("room", "Bob"), token: bob, want: missing},
		{name: "C62 remove another without manage", procedure: removeMembers, message: memberCalls[removeMembers]("room", "tester"), token: bob, want: missing},
		{name: "C62 remove oneself and another", procedure: removeMembers, message: memberCalls[removeMembers]("closed", "bob", "alice"), token: bob, want: missing},
		{name: "C62 list members without history", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "room"}, token: writer, want: missing},
		{name: "C62 list members with manage alone", procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: "room"}, token: warden, want: missing},
		{name: "C62 mark read without history", procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: "room", Seq: 1}, token: writer, want: missing},
		{name: "C62 type without send", procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "room"}, token: reader, want: missing},
		{name: "add oneself to nothing", procedure: addMembers, message: memberCalls[addMembers]("nothing", "bob"), token: bob, want: none},
		{name: "add to nothing", procedure: addMembers, message: memberCalls[addMembers]("nothing", "bob"), want: none},
		{name: "remove from nothing", procedure: removeMembers, message: memberCalls[removeMembers]("nothing", "bob"), want: none},
	}
}

func TestHostileChannels(t *testing.T) { //nolint:paralleltest // it measures the time on a processor, which all tests share
	g := attack(t, nil)
	c := g.tester()
	if _, err := c.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: "closed", MembersOnly: true, UserIds: []string{"alice"}}); err != nil {
		t.Fatal(err)
	}
	secret := send(t, c, "closed", "secret").GetMsgId()
	for range 3 {
		send(t, c, "long", "x")
	}
	if _, err := c.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: "long", UserIds: []string{"alice", "carol"}}); err != nil {
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
	g.run(pageLines(g, members.GetNextPageToken(), mine.GetNextPageToken(), messages.GetNextPageToken()))
	g.run(strangerLines(g, secret))
	g.run(manageLines(g))
	// What was refused has made no channel that the tester can't see.
	for _, channel := range []string{"fresh", "nothing", "nobody-writes-here"} {
		if _, err := c.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel}); err != nil {
			t.Errorf("%s is taken: %v", channel, err)
		}
	}
}
