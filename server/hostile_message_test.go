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

// Hostile input about messages in a single request. Members are covered in hostile_channel_test.go.
// Page tokens of an old epoch require a restored store and are covered by the page tokens' own
// tests. Streams with such a position, with too many channels, and with readers that stop are in
// hostile_stream_test.go.

// badIDs are invalid channel and message ids.
var badIDs = map[string]string{
	"empty": "", "star": "*", "two tokens": "a.b", "an empty token": "a..b", "space": "a b",
	"a command in it": "a\r\nPUB x 1", "JetStream's": "$JS.API.STREAM.DELETE.S", "129 characters": strings.Repeat("a", 129),
	"right to left": "a\u202eb", "zero width": "a\u200bb", "path": "../x", "hash tag": "{tag}",
	"wildcard of NATS": ">", "a newline at the end": "room\n", "not ASCII": "räume", "NUL": "ro\x00om", "a brace": "}{", "percent": "a%2e",
}

// idLines returns requests that send each bad id to every procedure that takes a channel or message
// id.
func idLines() []line {
	var lines []line
	for name, id := range badIDs {
		add := func(procedure, field string, m proto.Message) {
			lines = append(lines, line{name: name + " in " + procedure + "'s " + field, procedure: procedure, message: m, want: invalid(field)})
		}
		add(sendMessage, "channel_id", &parleyv1.SendMessageRequest{ChannelId: id, Content: "x"})
		add(listMessages, "channel_id", &parleyv1.ListMessagesRequest{ChannelId: id})
		add(getMessage, "channel_id", &parleyv1.GetMessageRequest{ChannelId: id, MsgId: "m"})
		add(getMessage, "msg_id", &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: id})
		add(editMessage, "channel_id", &parleyv1.EditMessageRequest{ChannelId: id, MsgId: "m", Content: "x"})
		add(editMessage, "msg_id", &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: id, Content: "x"})
		add(recall, "channel_id", &parleyv1.RecallMessageRequest{ChannelId: id, MsgId: "m"})
		add(recall, "msg_id", &parleyv1.RecallMessageRequest{ChannelId: "room", MsgId: id})
		add(subscribing, "channels[1].channel_id", &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live("room"), live(id)}})
		add(updating, "stream_id", &parleyv1.UpdateSubscriptionRequest{StreamId: id})
		add(updating, "add[0].channel_id", &parleyv1.UpdateSubscriptionRequest{StreamId: "s", Add: []*parleyv1.ChannelPosition{live(id)}})
		add(updating, "remove[1]", &parleyv1.UpdateSubscriptionRequest{StreamId: "s", Remove: []string{"room", id}})
		add(createChannel, "channel_id", &parleyv1.CreateChannelRequest{ChannelId: id, MembersOnly: true, Members: membersOf("bob")})
		add(addMembers, "channel_id", &parleyv1.AddMembersRequest{ChannelId: id, Members: membersOf("bob")})
		add(removeMembers, "channel_id", &parleyv1.RemoveMembersRequest{ChannelId: id, UserIds: []string{"tester"}})
		add(listMembers, "channel_id", &parleyv1.ListMembersRequest{ChannelId: id})
		add(markRead, "channel_id", &parleyv1.MarkReadRequest{ChannelId: id, Seq: 1})
		add(sendTyping, "channel_id", &parleyv1.SendTypingRequest{ChannelId: id})
	}
	// Message and stream ids are shorter than channel ids.
	long := strings.Repeat("a", 65)
	for procedure, m := range map[string]proto.Message{
		getMessage: &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: long}, recall: &parleyv1.RecallMessageRequest{ChannelId: "room", MsgId: long},
		editMessage: &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: long, Content: "x"}, updating: &parleyv1.UpdateSubscriptionRequest{StreamId: long},
	} {
		field := "msg_id"
		if procedure == updating {
			field = "stream_id"
		}
		lines = append(lines, line{name: "65 characters in " + procedure + "'s " + field, procedure: procedure, message: m, want: invalid(field)})
	}
	return lines
}

// sent returns a valid message with a change.
func sent(change func(*parleyv1.SendMessageRequest)) *parleyv1.SendMessageRequest {
	m := good()
	change(m)
	return m
}

func metadata(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m["k"+strconv.Itoa(i)] = "v"
	}
	return m
}

func fieldLines() []line {
	type send = *parleyv1.SendMessageRequest
	const kib = 1 << 10
	edit := func(content, id string) *parleyv1.EditMessageRequest {
		return &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: "m", Content: content, ClientMsgId: id}
	}
	batch := func(n int) *parleyv1.SendMessagesRequest {
		r := &parleyv1.SendMessagesRequest{}
		for range n {
			r.Messages = append(r.Messages, good())
		}
		return r
	}
	return []line{
		{name: "no content", message: sent(func(m send) { m.Content = "" }), want: over("content", 1)},
		{name: "content of 65,537 bytes", message: sent(func(m send) { m.Content = strings.Repeat("x", 65537) }), want: over("content", 65536)},
		{name: "content of 65,537 bytes in two-byte letters", message: sent(func(m send) { m.Content = strings.Repeat("é", 32768) + "x" }), want: over("content", 65536)},
		{name: "NUL in content", message: sent(func(m send) { m.Content = "a\x00b" }), want: invalid("content")},
		{name: "NUL in client_msg_id", message: sent(func(m send) { m.ClientMsgId = "a\x00b" }), want: invalid("client_msg_id")},
		{name: "NUL in msg_type", message: sent(func(m send) { m.MsgType = "\x00" }), want: invalid("msg_type")},
		{name: "NUL in from_id", message: sent(func(m send) { m.FromId = "a\x00" }), want: invalid("from_id")},
		{name: "NUL in metadata", message: sent(func(m send) { m.Metadata = map[string]string{"k": "a\x00b"} }), want: invalid(`metadata["k"]`)},
		{name: "NUL in a metadata key", message: sent(func(m send) { m.Metadata = map[string]string{"a\x00b": "v"} }), want: invalid(`metadata["a\x00b"]`)},
		{name: "NUL in a page token", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "room", PageToken: "\x00"}, want: invalid("page_token")},
		{name: "NUL in an epoch", procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: "room", Epoch: "\x00"}}}, want: invalid("channels[0].epoch")},
		{name: "NUL in an edit", procedure: editMessage, message: edit("a\x00b", ""), want: invalid("content")},
		{name: "client_msg_id of 1 KiB", message: sent(func(m send) { m.ClientMsgId = strings.Repeat("k", kib) }), want: invalid("client_msg_id")},
		{name: "client_msg_id with a newline", message: sent(func(m send) { m.ClientMsgId = "a\nb" }), want: invalid("client_msg_id")},
		{name: "client_msg_id that ends with a newline", message: sent(func(m send) { m.ClientMsgId = "a\n" }), want: invalid("client_msg_id")},
		{name: "an edit's client_msg_id", procedure: editMessage, message: edit("x", "a b"), want: invalid("client_msg_id")},
		{name: "metadata key with a dot", message: sent(func(m send) { m.Metadata = map[string]string{"a.b": "v"} }), want: invalid(`metadata["a.b"]`)},
		{name: "metadata key with a dollar", message: sent(func(m send) { m.Metadata = map[string]string{"$set": "v"} }), want: invalid(`metadata["$set"]`)},
		{name: "metadata key of nothing", message: sent(func(m send) { m.Metadata = map[string]string{"": "v"} }), want: invalid(`metadata[""]`)},
		{name: "65 metadata entries", message: sent(func(m send) { m.Metadata = metadata(65) }), want: over("metadata", 16)},
		{name: "17 metadata entries", message: sent(func(m send) { m.Metadata = metadata(17) }), want: over("metadata", 16)},
		{name: "metadata value of 257 bytes", message: sent(func(m send) { m.Metadata = map[string]string{"k": strings.Repeat("v", 257)} }), want: over(`metadata["k"]`, 256)},
		{name: "msg_type with a space", message: sent(func(m send) { m.MsgType = "a b" }), want: invalid("msg_type")},
		{name: "msg_type of 33 letters", message: sent(func(m send) { m.MsgType = strings.Repeat("t", 33) }), want: invalid("msg_type")},
		{name: "from_id with a space", message: sent(func(m send) { m.FromId = "a b" }), want: invalid("from_id")},
		{name: "from_id of 129 letters", message: sent(func(m send) { m.FromId = strings.Repeat("a", 129) }), want: invalid("from_id")},
		{name: "edit to nothing", procedure: editMessage, message: edit("", ""), want: over("content", 1)},
		{name: "edit to 65,537 bytes", procedure: editMessage, message: edit(strings.Repeat("x", 65537), ""), want: over("content", 65536)},
		{name: "batch of 501", procedure: sendMessages, message: batch(501), want: over("messages", 500)},
		{name: "batch of none", procedure: sendMessages, message: batch(0), want: over("messages", 1)},
	}
}

// listLines returns requests with bad positions and pages. pageToken continues the subject tester's
// list of the channel `long`.
func listLines(pageToken, foreign string) []line {
	type list = parleyv1.ListMessagesRequest
	at := func(n int64) *int64 { return &n }
	beyond := want{code: "out_of_range", reason: "POSITION_OUT_OF_RANGE"}
	in := func(w want, field string, limit int64) want { w.field, w.limit = field, limit; return w }
	token := want{code: "invalid_argument", reason: "PAGE_TOKEN_INVALID", field: "page_token"}
	other := "A"
	if strings.HasSuffix(pageToken, other) {
		other = "B"
	}
	lines := []line{
		{name: "after_seq below 0", message: &list{ChannelId: "room", AfterSeq: at(-1)}, want: invalid("after_seq")},
		{name: "before_seq 0", message: &list{ChannelId: "room", BeforeSeq: at(0)}, want: over("before_seq", 1)},
		{name: "before_seq of the least int64", message: &list{ChannelId: "room", BeforeSeq: at(math.MinInt64)}, want: over("before_seq", 1)},
		{name: "min_seq below 0", message: &list{ChannelId: "room", MinSeq: -1}, want: invalid("min_seq")},
		{name: "page_size below 0", message: &list{ChannelId: "room", PageSize: -1}, want: invalid("page_size")},
		{name: "tampered page token", message: &list{ChannelId: "long", PageSize: 1, PageToken: pageToken[:len(pageToken)-1] + other}, want: token},
		{name: "page token that is cut", message: &list{ChannelId: "long", PageSize: 1, PageToken: pageToken[:20]}, want: token},
		{name: "page token that is none", message: &list{ChannelId: "long", PageSize: 1, PageToken: "{}"}, want: token},
		{name: "page token of another channel", message: &list{ChannelId: "room", PageSize: 1, PageToken: pageToken}, want: token},
		{name: "page token the other way", message: &list{ChannelId: "long", AfterSeq: at(0), PageSize: 1, PageToken: pageToken}, want: token},
		{name: "page token of 1,025 letters", message: &list{ChannelId: "long", PageToken: strings.Repeat("a", 1025)}, want: over("page_token", 1024)},
		{name: "page token of another subject", message: &list{ChannelId: "long", PageSize: 1, PageToken: pageToken}, token: foreign, want: want{code: "permission_denied", reason: "PAGE_TOKEN_FOREIGN", field: "page_token"}},
		{name: "two beyond the end", message: &list{ChannelId: "long", AfterSeq: at(4)}, want: in(beyond, "after_seq", 3)},
		{name: "the largest after_seq", message: &list{ChannelId: "long", AfterSeq: at(math.MaxInt64)}, want: in(beyond, "after_seq", 3)},
		{name: "the largest min_seq", message: &list{ChannelId: "long", MinSeq: math.MaxInt64}, want: in(beyond, "min_seq", 3)},
		{name: "in a channel without messages", message: &list{ChannelId: "nobody-writes-here", AfterSeq: at(1)}, want: in(beyond, "after_seq", 0)},
	}
	for i := range lines {
		lines[i].procedure = listMessages
	}
	return lines
}

// rightLines returns calls that their caller may not make. othersMessage is the id of another
// subject's message in the channel `long`.
func rightLines(g *target, othersMessage string) []line {
	type subscribe = parleyv1.SubscribeRequest
	bob := g.Mint("bob", ident.Send, ident.History, ident.Subscribe)
	reader, writer := g.Mint("bob", ident.History), g.Mint("bob", ident.Send)
	missing := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
	first := missing
	first.field = "channels[0].channel_id"
	notFound := want{code: "not_found", reason: "MESSAGE_NOT_FOUND", field: "msg_id"}
	notSender := want{code: "permission_denied", reason: "NOT_SENDER"}
	as := sent(func(m *parleyv1.SendMessageRequest) { m.FromId = "alice" })
	return []line{
		{name: "from_id of another", message: as, token: bob, want: want{code: "permission_denied", reason: "SENDER_MISMATCH"}},
		{name: "list without history", procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "room"}, token: writer, want: missing},
		{name: "get without history", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "long", MsgId: othersMessage}, token: writer, want: missing},
		{name: "send without send", message: good(), token: reader, want: missing},
		{name: "edit without send", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "long", MsgId: othersMessage, Content: "x"}, token: reader, want: missing},
		{name: "recall without send", procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: "long", MsgId: othersMessage}, token: reader, want: missing},
		{name: "subscribe without subscribe", procedure: subscribing, message: &subscribe{Channels: []*parleyv1.ChannelPosition{live("room")}}, token: reader, want: first},
		{name: "get what is not there", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: "nothing"}, want: notFound},
		{name: "get what another channel holds", procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: othersMessage}, want: notFound},
		{name: "edit what is not there", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: "nothing", Content: "x"}, want: notFound},
		{name: "recall what is not there", procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: "room", MsgId: "nothing"}, want: notFound},
		{name: "edit another's message", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "long", MsgId: othersMessage, Content: "x"}, token: bob, want: notSender},
		{name: "edit another's message as a moderator", procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: "long", MsgId: othersMessage, Content: "x"}, token: g.Mint("eve", ident.Send, ident.Moderate), want: notSender},
		{name: "recall another's message", procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: "long", MsgId: othersMessage}, token: bob, want: notSender},
		{name: "a stream that is not there", procedure: updating, message: &parleyv1.UpdateSubscriptionRequest{StreamId: "nothing"}, want: want{code: "not_found", reason: "STREAM_NOT_FOUND"}},
	}
}

func TestHostileMessages(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	c := g.Client(g.Token)
	var last string
	for range 3 {
		last = send(t, c, "long", "x").GetMsgId()
	}
	page := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "long", PageSize: 1})
	g.settle("long")
	g.run(idLines())
	g.run(fieldLines())
	g.run(listLines(page.GetNextPageToken(), g.Mint("bob", ident.History)))
	g.run(rightLines(g, last))
}
