package queue_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
)

func TestHubStartsAndStops(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	config := r.hubConfig()
	lifecycletest.Stress[*queue.Hub](t, func(*testing.T) *queue.Hub { return queue.NewHub(config) })
}

func TestHubRefusesConsumersUnlessItRuns(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := queue.NewHub(r.hubConfig())
	request := queue.OpenRequest{
		Subject: "ann", Topic: r.topic.Name, Group: group, Consumer: "c", MaxMessages: 1, Expires: time.Now().Add(time.Hour),
	}
	if _, err := h.Open(t.Context(), request); !fault.Is(err, fault.ShuttingDown) {
		t.Errorf("before Start: %v", err)
	}
	lifecycletest.Start(t, h)
	s, err := h.Open(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	lifecycletest.Stop(t, h)
	if _, err := h.Open(t.Context(), request); !fault.Is(err, fault.ShuttingDown) {
		t.Errorf("after Stop: %v", err)
	}
}
