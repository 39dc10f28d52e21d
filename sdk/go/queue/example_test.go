package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// Produce a job, and another one for later. Both are repeated under keys of their own until it is known that they are stored.
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

	// Send gathers what several goroutines send into batches. The messages of a key stay in order.
	receipt, err := jobs.Send(ctx, queue.Message{Key: "user-7", Payload: []byte("resize a.png")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("produced", receipt.MessageID)
	results, err := jobs.Schedule(ctx, time.Hour, queue.Message{Payload: []byte("remind user-7")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("scheduled", results[0].Receipt.MessageID)
}

// Work until an interrupt: what is under way then is finished, and the rest goes to other workers.
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
	worker := queue.NewWorker(client, "jobs", "resizers", func(ctx context.Context, d *queue.Delivery) error {
		// A message may come twice, with the same d.MessageID: where that matters, note the id with what is done.
		switch err := resize(ctx, d.Payload); {
		case errors.Is(err, errUnreadable):
			return queue.DeadLetter(err) // no other attempt would help
		case err != nil:
			return queue.RetryAfter(err, time.Minute) // plain errors are tried again after the topic's backoff
		}
		return nil // acknowledges it
	}, queue.WithConcurrency(32))
	if err := worker.Run(ctx); err != nil {
		log.Print(err)
	}
}
