package parley_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// handled is an HTTP client that calls a handler in this process, so that a test can use a fake
// clock.
type handled struct{ http.Handler }

func (h handled) Do(req *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, req)
	return answer.Result(), nil
}

// defaultWaits makes the client wait as by default between attempts. It is for tests with a fake
// clock, in which waits take no time.
var defaultWaits = parley.WithBackoff(parley.Backoff{})

// unreachable is an HTTP client whose calls all fail with STORE_UNAVAILABLE, which is retryable.
type unreachable struct{}

func (unreachable) Do(req *http.Request) (*http.Response, error) {
	return handled{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		_ = connect.NewErrorWriter().Write(w, r, fault.Err)
	})}.Do(req)
}

// wantTimeout fails the test unless err is the error of a call that reached the default deadline.
// It must wrap context.DeadlineExceeded and the last failure, and its text must name the deadline
// and that failure.
func wantTimeout(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrStoreUnavailable) ||
		!strings.Contains(err.Error(), "deadline of 30s") || !strings.Contains(err.Error(), "STORE_UNAVAILABLE") {
		t.Errorf("%s: %v, want its deadline and the last failure", what, err)
	}
}

// TestCallTimeout makes every call to a server that always fails, with a context that has no
// deadline. Each must end after 30 s, the default call timeout.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), newClient(t, "127.0.0.1:1", parley.WithHTTPClient(unreachable{}), defaultWaits)
		for name, call := range map[string]func() error{
			"Send":   func() error { _, err := c.Send(ctx, "room", "hello"); return err },
			"Edit":   func() error { _, err := c.Edit(ctx, "room", "m", "hello"); return err },
			"Recall": func() error { _, err := c.Recall(ctx, "room", "m"); return err },
			"Get":    func() error { _, _, err := c.Get(ctx, "room", "m"); return err },
			"SendBatch": func() error {
				results, err := c.SendBatch(ctx, []parley.Outgoing{{ChannelID: "room", Content: "hello"}})
				if !errors.Is(results[0].Err, parley.ErrStoreUnavailable) {
					t.Errorf("the item's error is %v", results[0].Err)
				}
				return err
			},
			"CreateChannel": func() error { _, err := c.CreateChannel(ctx, "room"); return err },
			"AddMembers":    func() error { return c.AddMembers(ctx, "room", "ann") },
			"RemoveMembers": func() error { return c.RemoveMembers(ctx, "room", "ann") },
			"MarkRead":      func() error { _, err := c.MarkRead(ctx, "room", 1); return err },
			"Members":       func() error { return lastError(c.Members(ctx, "room")) },
			"Channels":      func() error { return lastError(c.Channels(ctx)) },
			"History":       func() error { return lastError(c.History(ctx, "room")) },
			"ServerInfo":    func() error { _, err := c.ServerInfo(ctx); return err },
		} {
			began := time.Now()
			err := call()
			wantTimeout(t, name, err)
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("%s: ended after %s", name, took)
			}
		}
	})
}

// TestContextDeadlineOverridesCallTimeout checks that the context's deadline overrides the default
// one, whether it is shorter or longer, and that the default one can be disabled.
func TestContextDeadlineOverridesCallTimeout(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		opt  parley.Option
		own  time.Duration
		want error
	}{
		"shorter":   {parley.WithCallTimeout(30 * time.Second), 10 * time.Second, context.DeadlineExceeded},
		"longer":    {parley.WithCallTimeout(30 * time.Second), 10 * time.Minute, context.DeadlineExceeded},
		"off":       {parley.WithCallTimeout(0), 0, context.Canceled},
		"less":      {parley.WithCallTimeout(-1), 0, context.Canceled},
		"cancelled": {parley.WithCallTimeout(30 * time.Minute), 0, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, "127.0.0.1:1", parley.WithHTTPClient(unreachable{}), defaultWaits, one.opt)
			after := one.own
			ctx, cancel := context.WithTimeout(t.Context(), one.own)
			if one.own == 0 {
				after = 20 * time.Minute
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(after, cancel)
			}
			defer cancel()
			began := time.Now()
			_, err := c.Send(ctx, "room", "hello")
			if !errors.Is(err, one.want) || !errors.Is(err, parley.ErrStoreUnavailable) || strings.Contains(err.Error(), "deadline of") {
				t.Errorf("%s: %v, want %v and the last failure", name, err, one.want)
			}
			if took := time.Since(began); took != after {
				t.Errorf("%s: ended after %s, want %s", name, took, after)
			}
		})
	}
}

// TestDefaultCallTimeout checks that the default deadline is 30 s.
func TestDefaultCallTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "127.0.0.1:1", parley.WithHTTPClient(&stuckClient{stuck: 1 << 30}))
		began := time.Now()
		_, err := c.Send(t.Context(), "room", "hello")
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("the call ended after %s", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deadline of 30s") ||
			!strings.Contains(err.Error(), "no answer from http://127.0.0.1:1 within 10s") {
			t.Errorf("got %v, want the deadline and the last attempt", err)
		}
	})
}

// slowService takes the time in takes for each request. It refuses the batch item `stuck` with a
// retryable error.
type slowService struct {
	parleyv1connect.UnimplementedMessageServiceHandler

	takes time.Duration
}

func (s *slowService) work(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(s.takes):
	}
}

func (s *slowService) SendMessages(
	ctx context.Context, req *parleyv1.SendMessagesRequest,
) (*parleyv1.SendMessagesResponse, error) {
	s.work(ctx)
	res := &parleyv1.SendMessagesResponse{}
	for _, m := range req.GetMessages() {
		result := &parleyv1.SendResult{Result: &parleyv1.SendResult_Sent{Sent: &parleyv1.SendMessageResponse{Seq: 1}}}
		if m.GetClientMsgId() == "stuck" {
			detail := &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE}
			result.Result = &parleyv1.SendResult_Error{
				Error: &parleyv1.ItemError{Code: parleyv1.StatusCode_STATUS_CODE_UNAVAILABLE, Detail: detail},
			}
		}
		res.Results = append(res.Results, result)
	}
	return res, nil
}

func (s *slowService) AddMembers(ctx context.Context, _ *parleyv1.AddMembersRequest) (*parleyv1.AddMembersResponse, error) {
	s.work(ctx)
	return &parleyv1.AddMembersResponse{}, nil
}

func (s *slowService) ListMessages(ctx context.Context, _ *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	s.work(ctx)
	return &parleyv1.ListMessagesResponse{Messages: []*parleyv1.ChannelMessage{{}}, NextPageToken: "next"}, nil
}

// TestProgressRestartsCallTimeout sends a batch, adds members and lists messages, each with more
// requests than fit into the call timeout. They must succeed.
func TestProgressRestartsCallTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &slowService{}
		mux := http.NewServeMux()
		mux.Handle(parleyv1connect.NewMessageServiceHandler(service))
		ctx, c := t.Context(), newClient(t, "127.0.0.1:1", parley.WithHTTPClient(handled{mux}), defaultWaits)
		messages := make([]parley.Outgoing, 6*500)
		for i := range messages {
			messages[i] = parley.Outgoing{ChannelID: "room", Content: "hello"}
		}
		service.takes = 12 * time.Second
		began := time.Now()
		if _, err := c.SendBatch(ctx, messages); err != nil {
			t.Errorf("batch: %v", err)
		}
		if took := time.Since(began); took != 6*service.takes {
			t.Errorf("the batch took %s", took)
		}
		service.takes = 4 * time.Second
		if err := c.AddMembers(ctx, "room", make([]string, 10*500)...); err != nil {
			t.Errorf("members: %v", err)
		}
		n := 0
		for _, err := range c.History(ctx, "room", parley.Limit(10)) {
			if err != nil {
				t.Errorf("history: %v", err)
			}
			n++
		}
		if n != 10 {
			t.Errorf("%d messages", n)
		}
		// A call that makes no more progress must end 30 s after its last progress.
		began = time.Now()
		results, err := c.SendBatch(ctx, []parley.Outgoing{
			{ChannelID: "room", Content: "a", ClientMsgID: "fine"}, {ChannelID: "other", Content: "b", ClientMsgID: "stuck"},
		})
		wantTimeout(t, "stuck batch", err)
		if took := time.Since(began); took != service.takes+30*time.Second {
			t.Errorf("the stuck batch took %s", took)
		}
		if results[0].Receipt == nil || results[0].Err != nil || !errors.Is(results[1].Err, parley.ErrStoreUnavailable) {
			t.Errorf("results %+v", results)
		}
	})
}

// TestSubscriptionsHaveNoDeadline keeps a subscription live, and later disconnected, for longer
// than the call timeout. It must not end.
func TestSubscriptionsHaveNoDeadline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const timeout = 30 * time.Millisecond
	c := newClient(t, s.Addr(), parley.WithCallTimeout(timeout))
	sub := c.Subscribe(t.Context(), parley.FromStart("room"))
	t.Cleanup(sub.Close)
	nextEvent(t, sub, parley.EventChannelState)
	<-time.After(3 * timeout)
	s.Post("room", "bob", "late")
	wantEntries(t, sub, "room", 1, 1)
	s.Kill()
	<-time.After(3 * timeout)
	s.Restart()
	s.Post("room", "bob", "later")
	wantEntries(t, sub, "room", 2, 2)
}

// TestTypingHasDeadline calls a server that does not answer. The call must end at the call timeout.
func TestTypingHasDeadline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	stuck := &stuckClient{next: h2cClient(t), stuck: 1}
	const timeout = 50 * time.Millisecond
	c := newClient(t, s.Addr(), parley.WithHTTPClient(stuck), parley.WithCallTimeout(timeout))
	err := c.Typing(t.Context(), "room")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deadline of 50ms") {
		t.Errorf("got %v", err)
	}
}
