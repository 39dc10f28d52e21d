package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// TestQueueDeploy replaces every node of a fleet, one after another, while workers with tokens of a
// few seconds run jobs of seconds: each job is begun once, and no handler is disturbed.
func TestQueueDeploy(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.KeyPrefix = "p:" }))
	nodes := []*servertest.Server{s, s.Join(), s.Join()}
	addresses := s.URL + "," + nodes[1].URL + "," + nodes[2].URL
	fresh := []*servertest.Server{s.Join(), s.Join(), s.Join()}
	for _, n := range fresh {
		addresses += "," + n.URL
	}
	client := newWorkerClient(t, s, addresses)
	admin := queue.NewAdmin(client)
	if _, err := admin.CreateTopic(t.Context(), &parleyv1.Topic{Name: "jobs", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateGroup(t.Context(), "jobs", &parleyv1.Group{
		Name: "g", ResumeGrace: durationpb.New(8 * time.Second), AckTimeout: durationpb.New(5 * time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	const long, jobs = 8, 400
	var mu sync.Mutex
	begun := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 4 {
		w := queue.NewWorker(newWorkerClient(t, s, addresses), "g", queue.WithConcurrency(3)).Handle("jobs",
			func(ctx context.Context, d *queue.Delivery) error {
				mu.Lock()
				begun[d.MessageID]++
				mu.Unlock()
				takes := 5 * time.Millisecond
				if d.Key != "" {
					takes = 6 * time.Second
				}
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					t.Errorf("the handler of %s was disturbed: %v", d.MessageID, context.Cause(ctx))
				}
				return nil
			})
		workers.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	producer := queue.NewProducer(client, "jobs")
	send := func(n int, key string) {
		t.Helper()
		for i := range n {
			if _, err := producer.Send(t.Context(), queue.Message{Key: key, Payload: []byte(fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range long { // jobs of one key would be handled one after another
		send(1, fmt.Sprint("long", i))
	}
	send(jobs/2, "")
	for _, n := range nodes {
		n.Stop()
	}
	send(jobs/2, "")
	deadline := time.Now().Add(time.Minute)
	for done := false; !done && time.Now().Before(deadline); {
		mu.Lock()
		done = len(begun) == long+jobs
		mu.Unlock()
		<-time.After(10 * time.Millisecond)
	}
	stop()
	workers.Wait()
	if len(begun) != long+jobs {
		t.Errorf("%d of %d jobs were begun", len(begun), long+jobs)
	}
	for id, n := range begun {
		if n > 1 {
			t.Errorf("%s was begun %d times", id, n)
		}
	}
}

// newWorkerClient returns a client whose tokens last three seconds.
func newWorkerClient(t *testing.T, s *servertest.Server, addresses string) *parley.Client {
	t.Helper()
	c, err := parley.New(addresses, parley.WithTokenSource(func(context.Context) (string, error) {
		return s.MintAs(&ident.Principal{
			Subject: "worker", Queues: []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}}, Admin: ident.AdminActions,
		}, 3*time.Second), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
