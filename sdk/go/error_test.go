package parley

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestEveryReasonHasASentinel parses error.go and checks that each reason of the proto has one
// sentinel, named after it.
func TestEveryReasonHasASentinel(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string) // by reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || fmt.Sprint(call.Fun) != "reasonError" {
			return true
		}
		reason := strings.TrimPrefix(call.Args[0].(*ast.SelectorExpr).Sel.Name, "ErrorReason_ERROR_REASON_")
		if names[reason] != "" {
			t.Errorf("%s has two sentinels", reason)
		}
		names[reason] = spec.Names[0].Name
		return true
	})
	for number, value := range parleyv1.ErrorReason_name {
		reason := strings.TrimPrefix(value, "ERROR_REASON_")
		want := "Err"
		for word := range strings.SplitSeq(reason, "_") {
			want += word[:1] + strings.ToLower(word[1:])
		}
		want = strings.NewReplacer("MsgId", "MsgID", "Api", "API").Replace(want)
		if number == 0 {
			want = ""
		}
		if names[reason] != want {
			t.Errorf("%s has the sentinel %q, want %q", reason, names[reason], want)
		}
	}
	if e := error(&Error{Reason: parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED}); !errors.Is(e, ErrTopicPaused) || errors.Is(e, ErrTopicFull) {
		t.Error("errors.Is does not compare the reason")
	}
}

// TestItemError checks the conversion of a batch item's error: its code, for every status code, and
// its detail.
func TestItemError(t *testing.T) {
	t.Parallel()
	for number, name := range parleyv1.StatusCode_name {
		e := itemError(&parleyv1.ItemError{Code: parleyv1.StatusCode(number)})
		want := strings.ToLower(strings.TrimPrefix(name, "STATUS_CODE_"))
		switch number {
		case 0:
			want = "unknown"
		case 1:
			want = "canceled"
		}
		if e.Code.String() != want {
			t.Errorf("code %s: got %s", name, e.Code)
		}
	}
	if e := itemError(&parleyv1.ItemError{Code: 4711}); e.Code != connect.CodeUnknown || e.Retryable {
		t.Errorf("an unknown code became %+v", e)
	}
	if e := itemError(&parleyv1.ItemError{Code: parleyv1.StatusCode_STATUS_CODE_UNAVAILABLE}); !e.Retryable {
		t.Errorf("unavailable without a detail became %+v", e)
	}
	e := itemError(&parleyv1.ItemError{
		Code: parleyv1.StatusCode_STATUS_CODE_FAILED_PRECONDITION, Message: "no",
		Detail: &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED},
	})
	if !errors.Is(e, ErrTopicPaused) || !e.Retryable || e.Code != connect.CodeFailedPrecondition || e.Message != "no" {
		t.Errorf("got %+v", e)
	}
}

// emptyQueues is a queue service that ends each stream at once, without an error.
type emptyQueues struct {
	nextv1connect.UnimplementedQueueServiceHandler
}

func (emptyQueues) StreamingConsume(
	context.Context, *connect.BidiStream[nextv1.StreamingConsumeRequest, nextv1.StreamingConsumeResponse],
) error {
	return nil
}

// TestConcurrentStreamEndsDoNotRace converts the errors of two streams that end concurrently.
// connect shares one error value between them, so toError must not write to it; the race detector
// would see that.
func TestConcurrentStreamEndsDoNotRace(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(nextv1connect.NewQueueServiceHandler(emptyQueues{}))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := nextv1connect.NewQueueServiceClient(server.Client(), server.URL)
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			stream, err := client.StreamingConsume(t.Context())
			if err == nil {
				_, err = stream.Receive()
			}
			if e, ok := errors.AsType[*Error](toError(err)); !ok || !errors.Is(e, io.EOF) || !e.Retryable || e.RequestID != "" {
				t.Errorf("the end of a stream: %#v", e)
			}
		})
	}
	running.Wait()
}
