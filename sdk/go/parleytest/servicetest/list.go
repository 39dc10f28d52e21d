package servicetest

import (
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// pages calls ListMessages for all pages and returns the messages' contents, with a "|" after each
// page.
func (e *env) pages(c *caller, request *parleyv1.ListMessagesRequest) string {
	e.Helper()
	var out strings.Builder
	for {
		r, err := c.ListMessages(e.ctx, request)
		e.no(err)
		for _, m := range r.GetMessages() {
			out.WriteString(m.GetContent() + " ")
		}
		out.WriteString("|")
		if request.PageToken = r.GetNextPageToken(); request.GetPageToken() == "" {
			return out.String()
		}
	}
}

func list(e *env) {
	room := e.name("room")
	var last *parleyv1.SendMessageResponse
	for _, content := range []string{"1", "2", "3", "4", "5"} {
		last = e.say(e.ann, room, content)
	}
	e.no(errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: last.GetMsgId(), Content: "5!"})))
	after, before := int64(0), int64(4)
	all := &parleyv1.ListMessagesRequest{ChannelId: room, AfterSeq: &after, PageSize: 2, MinSeq: 6}
	equal(e, "ascending", e.pages(e.ann, all), "1 2 |3 4 |5! |")
	newest := &parleyv1.ListMessagesRequest{ChannelId: room, PageSize: 2, MinSeq: 6}
	equal(e, "descending", e.pages(e.ann, newest), "5! 4 |3 2 |1 |")
	older := &parleyv1.ListMessagesRequest{ChannelId: room, BeforeSeq: &before, MinSeq: 6}
	equal(e, "before", e.pages(e.ann, older), "3 2 1 |")
	after = 1
	between := &parleyv1.ListMessagesRequest{ChannelId: room, AfterSeq: &after, BeforeSeq: &before, MinSeq: 6, PageSize: 5000}
	equal(e, "between", e.pages(e.ann, between), "2 3 |")
	whole := &parleyv1.ListMessagesRequest{ChannelId: room, PageSize: 5, MinSeq: 6}
	equal(e, "a full page", e.pages(e.ann, whole), "5! 4 3 2 1 |")
	r, err := e.bob.ListMessages(e.ctx, newest)
	e.no(err)
	if r.GetHeadSeq() != 6 || r.GetOldestSeq() != 1 || r.GetEpoch() != last.GetEpoch() {
		e.Errorf("page %v", r)
	}
}

func listRefused(e *env) {
	room := e.name("room")
	for range 3 {
		e.say(e.ann, room, "x")
	}
	r, err := e.ann.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room, PageSize: 1, MinSeq: 3})
	e.no(err)
	token, after, beyond := r.GetNextPageToken(), int64(1), int64(4)
	bad := refusal{connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID", "page_token", 0}
	call := func(c *caller, request *parleyv1.ListMessagesRequest) error {
		return errOf(c.ListMessages(e.ctx, request))
	}
	e.no(call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: room, PageToken: token, PageSize: 7}))
	e.refused("no token", call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: room, PageToken: "2"}), bad)
	e.refused("another channel", call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: e.name("other"), PageToken: token}), bad)
	e.refused("another query", call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: room, PageToken: token, AfterSeq: &after}), bad)
	e.refused("another user", call(e.bob, &parleyv1.ListMessagesRequest{ChannelId: room, PageToken: token}),
		refusal{connect.CodePermissionDenied, "PAGE_TOKEN_FOREIGN", "page_token", 0})
	e.refused("after_seq", call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: room, AfterSeq: &beyond}),
		refusal{connect.CodeOutOfRange, "POSITION_OUT_OF_RANGE", "after_seq", 3})
	e.refused("min_seq", call(e.ann, &parleyv1.ListMessagesRequest{ChannelId: room, MinSeq: 4}),
		refusal{connect.CodeOutOfRange, "POSITION_OUT_OF_RANGE", "min_seq", 3})
}

func listOfNothing(e *env) {
	r, err := e.ann.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: e.name("empty")})
	e.no(err)
	if len(r.GetMessages()) > 0 || r.GetNextPageToken() != "" || r.GetHeadSeq() != 0 || r.GetOldestSeq() != 1 || r.GetEpoch() == "" {
		e.Errorf("page %v", r)
	}
}
