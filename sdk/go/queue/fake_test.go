package queue_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a QueueService for scripted faults only: it stores nothing and follows no rule of the
// queues beyond its script.
type fake struct {
	parleyv1connect.UnimplementedQueueServiceHandler

	mu       sync.Mutex
	produced []*parleyv1.ProduceRequest
	// answer returns the answer to the nth Produce, from 0.
	answer func(n int, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error)
	cancel func(req *parleyv1.CancelMessagesRequest) *parleyv1.CancelMessagesResponse
}

func (f *fake) Produce(_ context.Context, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
	f.mu.Lock()
	n := len(f.produced)
	f.produced = append(f.produced, req)
	f.mu.Unlock()
	return f.answer(n, req)
}

func (f *fake) CancelMessages(_ context.Context, req *parleyv1.CancelMessagesRequest) (*parleyv1.CancelMessagesResponse, error) {
	return f.cancel(req), nil
}

// start serves the fake and returns a client of it.
func (f *fake) start(t *testing.T) *parley.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewQueueServiceHandler(f))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	c, err := parley.New(s.URL, parley.WithToken("tester"), parley.WithBackoff(parley.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}))
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}
