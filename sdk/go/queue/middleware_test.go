package queue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

func TestMiddleware(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	produce(t, c, "jobs", queue.Message{})
	var order []string
	layer := func(name string) queue.Middleware {
		return func(next queue.Handler) queue.Handler {
			return func(ctx context.Context, d *queue.Delivery) error {
				order = append(order, name)
				return next(ctx, d)
			}
		}
	}
	w := work(t, c, "jobs", "g", (&record{}).handle, queue.WithMiddleware(layer("outer"), layer("inner")))
	settledAll(t, s, "jobs", "g", 1)
	if err := w.finish(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"outer", "inner"}, order); diff != "" {
		t.Error(diff)
	}
}

// TestLogging handles one delivery, fails one and panics in one. Each must be logged once, without
// the message's content.
func TestLogging(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	for _, p := range []string{"fine", "error", "panic"} {
		produce(t, c, "jobs", queue.Message{Key: "a-secret", Payload: []byte("secret-" + p), Headers: map[string]string{"h": "secret"}})
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var ids []string // of one key, so handled one at a time
	w := work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
		ids = append(ids, d.MessageID)
		switch string(d.Payload) {
		case "secret-error":
			return errors.New("boom")
		case "secret-panic":
			panic("bang")
		}
		return nil
	}, queue.WithMiddleware(func(next queue.Handler) queue.Handler { // so that none is retried
		return func(ctx context.Context, d *queue.Delivery) error { return queue.DeadLetter(next(ctx, d)) }
	}, queue.Logging(log)))
	eventually(t, func() error {
		if acked, dead := s.Acked("jobs", "g"), len(s.DeadLetters("jobs", "g")); acked != 1 || dead != 2 {
			return fmt.Errorf("%d acked, %d dead letters", acked, dead)
		}
		return nil
	})
	if err := w.finish(); err != nil {
		t.Error(err)
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("the log contains message content: %s", &out)
	}
	for i, want := range []string{"DEBUG delivery handled ", "WARN delivery failed boom", "WARN delivery failed panic: bang"} {
		var r struct {
			Level, Msg, Topic, Group, Error string
			MessageID                       string `json:"message_id"`
			Attempt                         int
			Took                            *int64
		}
		line, err := out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if got := r.Level + " " + r.Msg + " " + r.Error; got != want {
			t.Errorf("record %d is %q, want %q", i, got, want)
		}
		if r.Topic != "jobs" || r.Group != "g" || r.MessageID != ids[i] || r.Attempt != 1 || r.Took == nil {
			t.Errorf("record %d is about something else: %s", i, line)
		}
	}
	if out.Len() > 0 {
		t.Errorf("and more: %s", &out)
	}
}
