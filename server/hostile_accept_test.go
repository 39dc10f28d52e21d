package server_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

// answerTo sends a request that must succeed and returns its response.
func answerTo[M any, P interface {
	*M
	proto.Message
}](g *target, d *dialect, l *line, token string) P {
	g.t.Helper()
	out := P(new(M))
	g.call(l, d, token).decode(g.t, d, out)
	return out
}

// TestHostileOddButValidRequestsAreAccepted checks that requests that look odd but are valid are
// accepted: unknown fields that have no effect, values at a limit, text in any script, and both
// JSON forms of numbers. What was sent is read back unchanged.
func TestHostileOddButValidRequestsAreAccepted(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	contents := map[string]string{
		"65,536 bytes":           strings.Repeat("x", 65536),
		"65,536 bytes of escape": strings.Repeat("\x01", 65536),
		"65,536 bytes of script": strings.Repeat("é", 32768),
		"every kind of text":     "Ünïcödé 漢字 עברית العربية हिन्दी ภาษาไทย 👩‍👩‍👧‍👦 🏳️‍🌈 \U0010ffff é e\u0301",
		"marks and separators":   "\u202eright to left\u202c \u200b\u2028\u2029\ufeff\ufffd\ufffe\uffff",
		"controls":               "\x01\x07\x1b[31m\x7f\u0085\r\n\t",
		"markup":                 `<script>alert("1")</script> & {"$where":"sleep(1)"} ${jndi:ldap://x} '; DROP TABLE --`,
		"what looks like JSON":   `{"a":[1,2,{"b":"\\u0000"}]}`,
		"only spaces":            "   ",
	}
	for i := range dialects {
		d := &dialects[i]
		channel := "accepted-" + d.name
		for name, content := range contents {
			req := &parleyv1.SendMessageRequest{
				ChannelId: channel, Content: content, MsgType: strings.Repeat("t", 32),
				Metadata: map[string]string{strings.Repeat("k", 64): strings.Repeat("v", 256), "__proto__": "x", "constructor": "", "-": "\u2028"},
			}
			sent := answerTo[parleyv1.SendMessageResponse](g, d, &line{message: req}, g.Token)
			got := answerTo[parleyv1.GetMessageResponse](g, d, &line{
				procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId()},
			}, g.Token).GetMessage()
			want := &parleyv1.ChannelMessage{
				MsgId: sent.GetMsgId(), ChannelId: channel, Seq: sent.GetSeq(), Count: sent.GetCount(), FromId: "tester", MsgType: req.GetMsgType(),
				Content: content, Metadata: req.GetMetadata(), ClientMsgId: sent.GetClientMsgId(), MsgTime: sent.GetMsgTime(),
				Status: parleyv1.MessageStatus_MESSAGE_STATUS_SENT, ChangedSeq: sent.GetSeq(),
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s, %s: %s", d.name, name, diff)
			}
		}
		entries := subscribe(t, g.Client(g.Token), from(channel, 0)).await(channel, 0, len(contents))
		seen := make(map[string]bool)
		for _, e := range entries {
			seen[e.GetSent().GetContent()] = true
		}
		for name, content := range contents {
			if !seen[content] {
				t.Errorf("%s, %s: a subscriber got something else", d.name, name)
			}
		}
	}
}

// TestHostileUnknownFieldsAndNumberForms checks that unknown fields have no effect in binary and on
// reads, and that JSON accepts numbers as numbers and as strings.
func TestHostileUnknownFieldsAndNumberForms(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	plain := g.Mint("plain", ident.Send, ident.History)
	for i := range dialects {
		d := &dialects[i]
		channel := "json-" + d.name
		if !d.json {
			// Fields 99 and 15 of a message that has neither: a group and a length-delimited field.
			l := line{binary: "\x0a" + string(rune(len(channel))) + channel + "\x12\x01x\x9b\x06\x9c\x06\x7a\x03abc"}
			if sent := answerTo[parleyv1.SendMessageResponse](g, d, &l, plain); sent.GetSeq() != 1 {
				t.Errorf("%s: %v", d.name, sent)
			}
			continue
		}
		l := line{json: `{"channelId":"` + channel + `","content":"x"}`}
		sent := answerTo[parleyv1.SendMessageResponse](g, d, &l, plain)
		got := answerTo[parleyv1.GetMessageResponse](g, d, &line{
			procedure: getMessage, json: `{"channelId":"` + channel + `","msg_id":"` + sent.GetMsgId() + `","isAdmin":true,"__proto__":{"msg_id":"x"},"new":[{}]}`,
		}, plain).GetMessage()
		if got.GetMsgId() != sent.GetMsgId() || got.GetFromId() != "plain" || got.GetSeq() != 1 {
			t.Errorf("%s: unknown fields made it %v", d.name, got)
		}
		for _, text := range []string{
			`{"channel_id":"` + channel + `","after_seq":0}`, `{"channelId":"` + channel + `","afterSeq":"0"}`,
			`{"channelId":"` + channel + `","afterSeq":0.0,"pageSize":1e1}`, `{"channelId":"` + channel + `","beforeSeq":9223372036854775807}`,
			`{"channelId":"` + channel + `","beforeSeq":"9223372036854775807","minSeq":null,"order":"NEWEST"}`,
		} {
			page := answerTo[parleyv1.ListMessagesResponse](g, d, &line{procedure: listMessages, json: text}, plain)
			if len(page.GetMessages()) != 1 || page.GetNextPageToken() != "" {
				t.Errorf("%s: %s is answered %v", d.name, text, page)
			}
		}
	}
}

// TestHostileSeqRangeEndsAreAccepted checks that ListMessages accepts every valid after_seq,
// before_seq and min_seq, such as 0 and the largest, and returns exactly the messages in between.
func TestHostileSeqRangeEndsAreAccepted(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	c := g.Client(g.Token)
	for range 3 {
		send(t, c, "seqs", "x")
	}
	type list = parleyv1.ListMessagesRequest
	for i := range dialects {
		d := &dialects[i]
		for name, tt := range map[string]struct {
			req  *list
			want int
		}{
			"after the last":         {&list{AfterSeq: proto.Int64(3)}, 0},
			"before the first":       {&list{BeforeSeq: proto.Int64(1)}, 0},
			"before the largest":     {&list{BeforeSeq: proto.Int64(math.MaxInt64)}, 3},
			"all":                    {&list{AfterSeq: proto.Int64(0), BeforeSeq: proto.Int64(math.MaxInt64)}, 3},
			"between":                {&list{AfterSeq: proto.Int64(1), BeforeSeq: proto.Int64(3)}, 1},
			"nothing between":        {&list{AfterSeq: proto.Int64(1), BeforeSeq: proto.Int64(2)}, 0},
			"the wrong way round":    {&list{AfterSeq: proto.Int64(3), BeforeSeq: proto.Int64(1)}, 0},
			"as new as the last":     {&list{MinSeq: 3}, 3},
			"the largest page":       {&list{PageSize: 1000}, 3},
			"after and before one":   {&list{AfterSeq: proto.Int64(0), BeforeSeq: proto.Int64(1)}, 0},
			"a channel without them": {&list{ChannelId: "nobody-wrote", AfterSeq: proto.Int64(0)}, 0},
		} {
			req := proto.CloneOf(tt.req)
			if req.GetChannelId() == "" {
				req.ChannelId = "seqs"
			}
			page := answerTo[parleyv1.ListMessagesResponse](g, d, &line{procedure: listMessages, message: req}, g.Token)
			if len(page.GetMessages()) != tt.want || page.GetNextPageToken() != "" {
				t.Errorf("%s, %s: answered %v, want %d messages", d.name, name, page, tt.want)
			}
		}
	}
}

// TestHostileBatchItemsFailIndependently checks that each bad item of a batch gets its own error
// and the other items are stored in order.
func TestHostileBatchItemsFailIndependently(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for i := range dialects {
		d := &dialects[i]
		channel := "batch-" + d.name
		item := func(change func(*parleyv1.SendMessageRequest)) *parleyv1.SendMessageRequest {
			m := &parleyv1.SendMessageRequest{ChannelId: channel, Content: "x"}
			if change != nil {
				change(m)
			}
			return m
		}
		type send = *parleyv1.SendMessageRequest
		items := []send{
			item(nil), item(func(m send) { m.Content = strings.Repeat("x", 65537) }), item(func(m send) { m.ChannelId = "a.b" }), item(nil),
			item(func(m send) { m.Content = "a\x00b" }), item(func(m send) { m.FromId = "root" }), item(func(m send) { m.ChannelId = "theirs" }),
			item(func(m send) { m.Metadata = metadata(17) }), item(func(m send) { m.ClientMsgId = "once" }),
			item(func(m send) { m.ClientMsgId = "once" }), item(func(m send) { m.ClientMsgId, m.Content = "once", "y" }), item(nil),
		}
		token := g.MintFor("plain", time.Hour, ident.Capability{Pattern: "batch-*", Actions: []ident.Action{ident.Send}})
		res := answerTo[parleyv1.SendMessagesResponse](g, d, &line{procedure: sendMessages, message: &parleyv1.SendMessagesRequest{Messages: items}}, token)
		var got []string
		for _, r := range res.GetResults() {
			if e := r.GetError(); e != nil {
				got = append(got, strings.Join([]string{codeOf(e), strings.TrimPrefix(e.GetDetail().GetReason().String(), "ERROR_REASON_"), e.GetDetail().GetField()}, " "))
				continue
			}
			got = append(got, strings.Repeat("i", int(r.GetSent().GetSeq())))
		}
		want := []string{
			"i", "invalid_argument INVALID_FIELD messages[1].content", "invalid_argument INVALID_FIELD messages[2].channel_id", "ii",
			"invalid_argument INVALID_FIELD messages[4].content", "permission_denied SENDER_MISMATCH ", "permission_denied CAPABILITY_MISSING ",
			"invalid_argument INVALID_FIELD messages[7].metadata", "iii", "iii", "already_exists CLIENT_MSG_ID_REUSED messages[10].client_msg_id", "iiii",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", d.name, diff)
		}
		if a, b := g.head(channel), g.head("theirs"); a != 4 || b != 0 {
			t.Errorf("%s: the channels end at %d and %d", d.name, a, b)
		}
	}
}

// codeOf returns the name of an item's error code as connect spells it, such as not_found.
func codeOf(e *parleyv1.ItemError) string { return connect.Code(e.GetCode()).String() }

// TestHostileSubjectsAreLiteral checks that subjects are taken literally. They expand to nothing,
// and share nothing with subjects that a pattern, key or query could match.
func TestHostileSubjectsAreLiteral(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	subjects := []string{"a:b", "*", "[a-z]?", ">", "a.b", "auth0|42", `{"$ne":""}`, "ada@example.com", "../x", "%2e%2e", "$JS.API.>", `"'\`, strings.Repeat("s", 128), "a"}
	for i := range dialects {
		d := &dialects[i]
		channel := "subjects-" + d.name
		for n, subject := range subjects {
			token := g.Mint(subject, ident.Send, ident.History, ident.Subscribe)
			l := line{message: &parleyv1.SendMessageRequest{ChannelId: channel, Content: subject, ClientMsgId: "the-same"}}
			sent := answerTo[parleyv1.SendMessageResponse](g, d, &l, token)
			if sent.GetSeq() != int64(n+1) || sent.GetDuplicate() {
				t.Errorf("%s: the first message of %q is %v", d.name, subject, sent)
			}
			if again := answerTo[parleyv1.SendMessageResponse](g, d, &l, token); !again.GetDuplicate() || again.GetMsgId() != sent.GetMsgId() {
				t.Errorf("%s: the second of %q is %v", d.name, subject, again)
			}
			got := answerTo[parleyv1.GetMessageResponse](g, d, &line{
				procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId()},
			}, token)
			if got.GetMessage().GetFromId() != subject {
				t.Errorf("%s: %q is written as %q", d.name, subject, got.GetMessage().GetFromId())
			}
			a := g.call(&line{procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId(), Content: "x"}},
				d, g.Mint(subjects[(n+1)%len(subjects)], ident.Send))
			g.judge(d.name+", "+subject, a, want{code: "permission_denied", reason: "NOT_SENDER"})
		}
	}
}
