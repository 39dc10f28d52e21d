package parley_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestSendRetriesWithTheSameID makes calls fail with and without effect. The retries must store one
// message.
func TestSendRetriesWithTheSameID(t *testing.T) {
	t.Parallel()
	unavailable := parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
	for name, fault := range map[string]parleytest.Fault{
		"refused":                   {Err: unavailable},
		"outcome unknown":           {Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN), Applied: true},
		"answer lost":               {Drop: true, Applied: true},
		"connection lost before":    {Drop: true},
		"a proxy's unavailable":     {Err: connect.NewError(connect.CodeUnavailable, nil)},
		"a reason of the future":    {Err: parleytest.Error(connect.CodeFailedPrecondition, 4711)},
		"internal":                  {Err: parleytest.Error(connect.CodeInternal, parleyv1.ErrorReason_ERROR_REASON_INTERNAL), Applied: true},
		"over the rate limit":       {Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED)},
		"the server's own deadline": {Err: parleytest.Error(connect.CodeDeadlineExceeded, parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED)},
	} {
		for protocol, p := range map[string]parley.Protocol{"connect": parley.ProtocolConnect, "grpc": parley.ProtocolGRPC} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				s := parleytest.Start(t)
				s.FaultTimes(3, "SendMessage", fault)
				c := newClient(t, s.Addr(), parley.WithProtocol(p))
				r, err := c.Send(testContext(t), "room", "hello")
				if err != nil {
					t.Fatalf("send: %v", err)
				}
				if got := s.Contents("room"); len(got) != 1 || r.Seq != 1 || r.Duplicate != fault.Applied {
					t.Errorf("log is %q, receipt %+v; want one message", got, r)
				}
				requests := parleytest.RequestsOf[*parleyv1.SendMessageRequest](s)
				if len(requests) != 4 {
					t.Errorf("%d attempts, want 4", len(requests))
				}
				for _, req := range requests {
					if req.GetClientMsgId() != r.ClientMsgID || req.GetClientMsgId() == "" {
						t.Errorf("an attempt had the id %q, the receipt %q", req.GetClientMsgId(), r.ClientMsgID)
					}
				}
			})
		}
	}
}

// TestFinalFailuresAreNotRetried checks that every final reason is returned at once.
func TestFinalFailuresAreNotRetried(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	for number, name := range parleyv1.ErrorReason_name {
		reason := parleyv1.ErrorReason(number)
		if number >= 100 || number == 0 {
			continue
		}
		before := len(s.Requests())
		s.FaultTimes(1, "SendMessage", parleytest.Fault{Err: parleytest.Error(connect.CodeFailedPrecondition, reason)})
		_, err := c.Send(testContext(t), "room", "hello")
		if e := asError(t, err); e.Reason != reason || e.Retryable || e.RequestID != "test-request" {
			t.Errorf("%s: got %+v", name, e)
		}
		if got := len(s.Requests()) - before; got != 1 {
			t.Errorf("%s: %d attempts, want 1", name, got)
		}
	}
	s.FaultTimes(1, "SendMessage", parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, 99)})
	if _, err := c.Send(testContext(t), "room", "hello"); asError(t, err).Retryable {
		t.Errorf("an unknown reason below 100 was taken for retryable")
	}
	if got := s.Contents("room"); len(got) != 0 {
		t.Errorf("the log holds %q", got)
	}
}

func TestSendHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const pause = 150 * time.Millisecond
	s.FaultTimes(1, "SendMessage", parleytest.Fault{Err: parleytest.ErrorDetail(connect.CodeResourceExhausted,
		&parleyv1.ErrorDetail{
			Reason: parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED, RetryAfter: durationpb.New(pause),
		})})
	began := time.Now()
	if _, err := newClient(t, s.Addr()).Send(testContext(t), "room", "hello"); err != nil {
		t.Fatalf("send: %v", err)
	}
	if took := time.Since(began); took < pause {
		t.Errorf("retried after %s, want at least %s", took, pause)
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.FaultTimes(1_000_000, "SendMessage", parleytest.Fault{
		Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := newClient(t, s.Addr()).Send(ctx, "room", "hello")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrStoreUnavailable) {
		t.Errorf("got %v, want both the context's error and the last failure", err)
	}
}

// TestEditAndRecallReturnTheMessage checks the message in the receipts of an edit and a recall,
// including repeated ones.
func TestEditAndRecallReturnTheMessage(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	r, err := c.Send(ctx, "room", "hello", parley.WithMetadata(map[string]string{"k": "v"}))
	if err != nil || r.Message != nil {
		t.Fatalf("send: %+v, %v", r, err)
	}
	s.FaultTimes(1, "EditMessage", parleytest.Fault{Drop: true, Applied: true})
	edit, err := c.Edit(ctx, "room", r.MsgID, "hello!")
	if err != nil || edit.Seq != 2 || !edit.Duplicate || edit.Epoch != r.Epoch ||
		edit.Message.GetContent() != "hello!" || edit.Message.GetSeq() != 1 || edit.Message.GetChangedSeq() != 2 ||
		edit.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_EDITED {
		t.Errorf("edit: %+v, %v", edit, err)
	}
	second, err := c.Edit(ctx, "room", r.MsgID, "bye")
	if err != nil || second.Duplicate || second.Seq != 3 {
		t.Errorf("edit: %+v, %v", second, err)
	}
	// A repeated edit must return the seq of the first one, and the message in its current state.
	again, err := c.Edit(ctx, "room", r.MsgID, "hello!", parley.WithClientMsgID(edit.ClientMsgID))
	if err != nil || again.Seq != 2 || !again.Duplicate || again.Message.GetContent() != "bye" || again.Message.GetChangedSeq() != 3 {
		t.Errorf("repeated edit: %+v, %v", again, err)
	}
	_, err = c.Edit(ctx, "room", r.MsgID, "other", parley.WithClientMsgID(edit.ClientMsgID))
	if !errors.Is(err, parley.ErrClientMsgIDReused) {
		t.Errorf("another edit under the same id: %v", err)
	}
	if m, epoch, err := c.Get(ctx, "room", r.MsgID); err != nil || m.GetContent() != "bye" || epoch != r.Epoch {
		t.Errorf("get: %v, %q, %v", m, epoch, err)
	}
	for i := range 2 {
		recall, err := c.Recall(ctx, "room", r.MsgID)
		if err != nil || recall.Seq != 4 || recall.Duplicate != (i > 0) || recall.Message.GetMsgId() != r.MsgID ||
			recall.Message.GetContent() != "" || len(recall.Message.GetMetadata()) != 0 ||
			recall.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
			t.Errorf("recall %d: %+v, %v", i, recall, err)
		}
	}
	if _, err := c.Edit(ctx, "room", r.MsgID, "too late"); !errors.Is(err, parley.ErrMessageRecalled) {
		t.Errorf("edit of a recalled message: %v", err)
	}
}

func TestServerInfo(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.FaultTimes(1, "GetServerInfo", parleytest.Fault{Drop: true})
	info, err := newClient(t, s.Addr()).ServerInfo(testContext(t))
	if err != nil || info.GetVersion() == "" || info.GetLimits().GetMaxChannelsPerStream() != 500 || len(info.GetFeatures()) == 0 {
		t.Errorf("got %v, %v", info, err)
	}
}

// stuckClient is an HTTP client whose first calls, as many as stuck, never get an answer.
type stuckClient struct {
	next  connect.HTTPClient
	stuck int32
	calls atomic.Int32
}

func (c *stuckClient) Do(req *http.Request) (*http.Response, error) {
	if c.calls.Add(1) > c.stuck {
		return c.next.Do(req)
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// TestAttemptTimeout uses a server that accepts calls and never answers. Each attempt must end at
// its own time limit.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	stuck := &stuckClient{next: h2cClient(t), stuck: 2}
	c := newClient(t, s.Addr(), parley.WithAttemptTimeout(50*time.Millisecond), parley.WithHTTPClient(stuck))
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil || stuck.calls.Load() != 3 {
		t.Errorf("send: %v after %d attempts, want success with the third", err, stuck.calls.Load())
	}
}

func TestInvalidTextIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	_, err := newClient(t, s.Addr()).Send(testContext(t), "room", "broken \xff text")
	if e := asError(t, err); !errors.Is(err, parley.ErrInvalidField) || e.Field != "content" {
		t.Errorf("got %+v", e)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestErrorFields(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.FaultTimes(1, "GetMessage", parleytest.Fault{Err: parleytest.ErrorDetail(connect.CodeInvalidArgument, &parleyv1.ErrorDetail{
		Reason: parleyv1.ErrorReason_ERROR_REASON_TOO_LARGE, Field: "messages[3].content", Limit: 65536, RequestId: "abc",
		RetryAfter: durationpb.New(time.Second),
		Positions:  []*parleyv1.LastPosition{{ChannelId: "room", Seq: 7, Epoch: "e"}},
	})})
	_, _, err := newClient(t, s.Addr()).Get(testContext(t), "room", "x")
	e := asError(t, err)
	if e.Code != connect.CodeInvalidArgument || e.Field != "messages[3].content" || e.Limit != 65536 ||
		e.RequestID != "abc" || e.RetryAfter != time.Second || e.Retryable ||
		len(e.Positions) != 1 || e.Positions[0] != (parley.Position{ChannelID: "room", Seq: 7, Epoch: "e"}) {
		t.Errorf("got %+v", e)
	}
	if !errors.Is(err, parley.ErrTooLarge) || errors.Is(err, parley.ErrMessageNotFound) {
		t.Errorf("errors.Is does not compare the reason of %v", err)
	}
}

// TestTokenIsRefreshedOnce makes many calls fail concurrently with an expired token. One call of
// the source must serve all of them.
func TestTokenIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetTokens("token-1")
	var minted atomic.Int32
	source := func(context.Context) (string, error) {
		n := minted.Add(1)
		if n > 1 {
			<-time.After(20 * time.Millisecond)
		}
		return map[int32]string{1: "token-1", 2: "token-2"}[n], nil
	}
	c := newClient(t, s.Addr(), parley.WithTokenSource(source))
	if _, err := c.Send(testContext(t), "room", "one"); err != nil {
		t.Fatalf("send: %v", err)
	}
	s.SetTokens("token-2")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Send(testContext(t), "room", "more"); err != nil {
				t.Errorf("send: %v", err)
			}
		})
	}
	wg.Wait()
	if got := minted.Load(); got != 2 {
		t.Errorf("the source was called %d times, want 2", got)
	}
	if got := len(s.Contents("room")); got != 21 {
		t.Errorf("%d messages, want 21", got)
	}
}

func TestExpiredTokenWithoutSourceIsFinal(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetTokens("another")
	_, err := newClient(t, s.Addr()).Send(testContext(t), "room", "hello")
	if !errors.Is(err, parley.ErrTokenExpired) || len(s.Requests()) != 1 {
		t.Errorf("got %v after %d requests", err, len(s.Requests()))
	}
}

// TestRefusedTokenIsReplacedOnlyOnce uses a server that refuses every token. The client must get
// one new token, try once more, and return the error.
func TestRefusedTokenIsReplacedOnlyOnce(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.FaultTimes(1_000_000, "SendMessage", parleytest.Fault{
		Err: parleytest.Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID),
	})
	var minted atomic.Int32
	c := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		minted.Add(1)
		return "token", nil
	}))
	if _, err := c.Send(testContext(t), "room", "hello"); !errors.Is(err, parley.ErrTokenInvalid) {
		t.Errorf("got %v", err)
	}
	if len(s.Requests()) != 2 || minted.Load() != 2 {
		t.Errorf("%d requests, %d tokens; want 2 and 2", len(s.Requests()), minted.Load())
	}
}

func TestTokenSourceFailures(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var calls atomic.Int32
	passing := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		if calls.Add(1) < 4 {
			return "", errors.New("issuer is away")
		}
		return "token", nil
	}))
	if _, err := passing.Send(testContext(t), "room", "hello"); err != nil {
		t.Errorf("a failure that passes: %v", err)
	}
	final := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		return "", parley.ErrTokenInvalid
	}))
	if _, err := final.Send(testContext(t), "room", "hello"); !errors.Is(err, parley.ErrTokenInvalid) {
		t.Errorf("a final failure: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, good := range []string{s.Addr(), "http://" + s.Addr(), "http://" + s.Addr() + "/"} {
		if _, err := newClient(t, good).Send(testContext(t), "room", "hello"); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "ftp://host", "http://", "http://host?x=1", "http://user@host", "http://ho st"} {
		if _, err := parley.New(bad); err == nil {
			t.Errorf("%q: got a client, want an error", bad)
		}
	}
}
