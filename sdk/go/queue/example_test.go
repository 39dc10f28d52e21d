package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"testing"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// Produce a job now, and another one for later. Both are repeated after failures and stored once.
func Example_produce() {
	ctx := context.Background()
	client, err := parley.New("127.0.0.1:8080", parley.WithToken("the token"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	jobs := queue.NewProducer(client, "jobs")
	defer func() {
		if err := jobs.Close(ctx); err != nil {
			log.Print(err)
		}
	}()

	// Send joins the messages of concurrent callers into batches. The messages of a key stay in
	// order.
	receipt, err := jobs.Send(ctx, queue.Message{Key: "user-7", Payload: []byte("resize a.png")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("produced", receipt.MessageID)
	results, err := jobs.Produce(ctx, queue.Message{Payload: []byte("remind user-7"), Delay: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for _, result := range results {
		if result.Err != nil {
			log.Print(result.Err) // permanently refused
			continue
		}
		fmt.Println("scheduled", result.Receipt.MessageID, "for", result.Receipt.DueTime)
	}
}

// Pause a topic for maintenance: producers wait. Then replay the dead letters of one group.
func Example_operate() {
	server := parleytest.Start(exampleTB{})
	defer server.Kill()
	server.AddTopic("jobs", 4, "resizers")
	ctx := context.Background()
	client, err := parley.New(server.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	admin := queue.NewAdmin(client)
	topic, err := admin.PauseTopic(ctx, "jobs")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused:", topic.GetPaused())
	if _, err := admin.ResumeTopic(ctx, "jobs"); err != nil {
		log.Fatal(err)
	}
	replayed, _, err := admin.ReplayDeadLetters(ctx, "jobs", queue.DeadLettersOf("resizers"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("replayed:", replayed)
	// Output:
	// paused: true
	// replayed: 0
}

// exampleTB replaces a test's testing.TB.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                   {}
func (exampleTB) Cleanup(func())            {}
func (exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

// Handle messages until an interrupt. The worker then finishes the messages that it handles and
// releases the other ones.
func Example_work() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := parley.New("127.0.0.1:8080", parley.WithToken("the token"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	errUnreadable := errors.New("unreadable image")
	resize := func(context.Context, []byte) error { return nil }
	worker := queue.NewWorker(client, "resizers", queue.WithConcurrency(32)).Handle("jobs", func(ctx context.Context, d *queue.Delivery) error {
		// A message may be delivered twice, with the same d.MessageID. If that matters, store the
		// id together with the result.
		switch err := resize(ctx, d.Payload); {
		case errors.Is(err, errUnreadable):
			return queue.DeadLetter(err) // no other attempt would help
		case err != nil:
			return queue.RetryAfter(err, time.Minute) // other errors are retried after the group's backoff
		}
		return nil // acknowledges the message
	})
	if err := worker.Run(ctx); err != nil {
		log.Print(err)
	}
}
