package rpc

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

func retry() *parleyv1.NackItem_Retry { return &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{}} }

func release() *parleyv1.NackItem_Release {
	return &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}
}

func retryIn(token string, delay time.Duration, reason, code string) *parleyv1.NackItem {
	r := retry()
	r.Retry.Delay = durationpb.New(delay)
	return &parleyv1.NackItem{Token: token, Reason: reason, Code: code, Outcome: r}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.consumers.do = func(c *queueCall) ([]error, error) {
		if c.Ref.StreamID == "gone" {
			return nil, fault.New(fault.FailedPrecondition, fault.LeaseLost, "gone")
		}
		errs := make([]error, len(c.Items))
		for i, it := range c.Items {
			if it.Token == "flipped" {
				f := fault.New(fault.InvalidArgument, fault.DeliveryTokenInvalid, "no")
				f.Field = "token"
				errs[i] = f
			}
		}
		return errs, nil
	}
	b.eachQueue(func(t *testing.T, c parleyv1connect.QueueServiceClient) {
		b.consumers.taken()
		ack, err := c.Ack(t.Context(), &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s", Tokens: []string{"t1", "", "a.b", "flipped", strings.Repeat("t", 513), "t2"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range ack.GetResults() {
			got = append(got, told(r.GetError()))
		}
		if diff := cmp.Diff([]string{
			"ok", "invalid_argument INVALID_FIELD tokens[1]", "invalid_argument INVALID_FIELD tokens[2]",
			"invalid_argument DELIVERY_TOKEN_INVALID tokens[3]", "invalid_argument INVALID_FIELD tokens[4]", "ok",
		}, got); diff != "" {
			t.Error(diff)
		}
		nack, err := c.Nack(t.Context(), &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: "s", Items: []*parleyv1.NackItem{
			retryIn("t3", time.Nanosecond, "r", "c"),
			{Token: "t4", Outcome: release()},
			{Token: "t5", Outcome: release(), Reason: "r"},
			{Token: "a.b", Outcome: release()},
			{Token: "t6", Outcome: retry(), Reason: "a\x00"},
			{Token: "flipped", Outcome: retry()},
			retryIn("t7", -1, "", ""),
			{Token: "t8", Outcome: release(), Code: "c"},
			{Token: "t9", Reason: "r"},
			{Token: "t10", Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}, Reason: "r", Code: "c"},
			{Token: "t11", Outcome: retry()},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, r := range nack.GetResults() {
			got = append(got, told(r.GetError()))
		}
		if diff := cmp.Diff([]string{
			"ok", "ok", "invalid_argument INVALID_FIELD items[2].release", "invalid_argument INVALID_FIELD items[3].token",
			"invalid_argument INVALID_FIELD items[4].reason", "invalid_argument DELIVERY_TOKEN_INVALID items[5].token",
			"invalid_argument INVALID_FIELD items[6].retry.delay", "invalid_argument INVALID_FIELD items[7].release",
			"invalid_argument INVALID_FIELD items[8].outcome", "ok", "ok",
		}, got); diff != "" {
			t.Error(diff)
		}
		extend := func(ackTimeout time.Duration, r *parleyv1.ExtendRequest) string {
			r.Topic, r.Group, r.StreamId, r.AckTimeout = "jobs", "g", "s", durationpb.New(ackTimeout)
			resp, err := c.Extend(t.Context(), r)
			if err != nil {
				return refusedAs(t, err)
			}
			text := "ok"
			for _, result := range resp.GetResults() {
				text += ", " + told(result.GetError())
			}
			return text
		}
		all := &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}
		some := func(tokens ...string) *parleyv1.ExtendRequest {
			return &parleyv1.ExtendRequest{Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}}
		}
		got = []string{
			extend(time.Minute, &parleyv1.ExtendRequest{Target: all}), extend(time.Minute, some("t1")),
			extend(time.Minute, some("a.b")), // an Extend without a valid token must not extend all deliveries
			extend(time.Minute, &parleyv1.ExtendRequest{}), extend(time.Minute, some()),
			extend(time.Minute, some(make([]string, 1001)...)), extend(time.Millisecond, &parleyv1.ExtendRequest{Target: all}),
		}
		if diff := cmp.Diff([]string{
			"ok", "ok, ok", "ok, invalid_argument INVALID_FIELD deliveries.tokens[0]",
			`invalid_argument INVALID_FIELD "target" 0`, `invalid_argument INVALID_FIELD "deliveries.tokens" 1`,
			`invalid_argument INVALID_FIELD "deliveries.tokens" 1000`, `invalid_argument INVALID_FIELD "ack_timeout" 1`,
		}, got); diff != "" {
			t.Error(diff)
		}
		if _, err := c.GrantCredits(t.Context(), &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: "s", TotalMessages: 7, TotalBytes: 9}); err != nil {
			t.Error(err)
		}
		if _, err := c.Leave(t.Context(), &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: "s"}); err != nil {
			t.Error(err)
		}
		base := queueCall{Ref: queue.StreamRef{StreamID: "s", Subject: "ada", Topic: "jobs", Group: "g"}}
		ms := time.Millisecond
		want := []queueCall{base, base, base, base, base, base}
		want[0].Method, want[0].Items = "ack", []queue.Nack{{Token: "t1"}, {Token: "flipped"}, {Token: "t2"}}
		want[1].Method, want[1].Items = "nack", []queue.Nack{
			{Token: "t3", Reason: "r", Code: "c", Delay: &ms},
			{Token: "t4", Release: true},
			{Token: "flipped"},
			{Token: "t10", Reason: "r", Code: "c", DeadLetter: true},
			{Token: "t11"},
		}
		want[2].Method, want[2].AckTimeout = "extend", time.Minute
		want[3].Method, want[3].AckTimeout, want[3].Items = "extend", time.Minute, []queue.Nack{{Token: "t1"}}
		want[4].Method, want[4].TotalMessages, want[4].TotalBytes = "grant", 7, 9
		want[5].Method = "leave"
		if diff := cmp.Diff(want, b.consumers.taken()); diff != "" {
			t.Error(diff)
		}
		_, err = c.Ack(t.Context(), &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "gone", Tokens: []string{"t"}})
		if d, _ := details(t, err); connect.CodeOf(err) != connect.CodeFailedPrecondition || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST {
			t.Errorf("of a stream that has ended: %v", err)
		}
		many := &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s"}
		for range 1000 {
			many.Tokens = append(many.Tokens, strings.Repeat("t", 200))
		}
		if r, err := c.Ack(t.Context(), many); err != nil || len(r.GetResults()) != 1000 {
			t.Errorf("1,000 tokens: %v", err)
		}
		many.Tokens = append(many.Tokens, "t")
		if _, err = c.Ack(t.Context(), many); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("1,001 tokens: %v", err)
		}
	})
}

// validToken and the schema's rule accept the same tokens.
func TestTokenForm(t *testing.T) {
	t.Parallel()
	pattern := rulesOf((&parleyv1.NackItem{}).ProtoReflect().Descriptor(), "token").GetString().GetPattern()
	form := regexp.MustCompile(pattern)
	for _, token := range []string{
		"", "a", "Az09_-", "a.b", "a b", "ä", "\n", "a\n", strings.Repeat("a", maxTokenBytes), strings.Repeat("a", maxTokenBytes+1),
	} {
		if validToken(token) != form.MatchString(token) {
			t.Errorf("%q of %d bytes: %t, unlike %s", token, len(token), validToken(token), pattern)
		}
	}
}
