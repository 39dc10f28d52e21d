package parley_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// Connect and send. A failed Send is retried with the same id, so the message is stored once.
func Example_send() {
	ctx := context.Background()
	client, err := parley.New("127.0.0.1:8080", parley.WithToken("the token"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	receipt, err := client.Send(ctx, "general", "Hello!")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored at", receipt.Seq)
}

// Read a channel from its start.
func Example_history() {
	ctx := context.Background()
	client, err := parley.New("127.0.0.1:8080", parley.WithToken("the token"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for message, err := range client.History(ctx, "general", parley.AfterSeq(0)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s: %s\n", message.GetSeq(), message.GetFromId(), message.GetContent())
	}
}

// Follow channels through reconnects, and keep the position for the next start of the program.
func Example_subscribe() {
	ctx := context.Background()
	client, err := parley.New("https://parley.example.com", parley.WithTokenSource(
		func(ctx context.Context) (string, error) { return "a new token", nil },
	))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stored := parley.Position{ChannelID: "general", Seq: 42}
	sub := client.Subscribe(ctx, parley.After(stored), parley.Live("alerts"))
	defer sub.Close()
	for event, err := range sub.Events() {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Kind {
		case parley.EventSent, parley.EventEdited, parley.EventRecalled:
			fmt.Println(event.ChannelID, event.Message.GetContent())
		case parley.EventGap:
			fmt.Println("load again:", event.ChannelID)
		case parley.EventLost:
			fmt.Println("no longer a member:", event.ChannelID)
		}
		if p, ok := sub.Position("general"); ok {
			stored = p
		}
	}
}

// Compare the reason of an error.
func Example_errors() {
	ctx := context.Background()
	client, err := parley.New("127.0.0.1:8080", parley.WithToken("the token"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = client.Edit(ctx, "general", "the message's id", "better")
	var failure *parley.Error
	switch {
	case errors.Is(err, parley.ErrMessageRecalled):
		fmt.Println("the message was recalled")
	case errors.Is(err, parley.ErrMessageNotFound):
		fmt.Println("there is no such message")
	case errors.As(err, &failure):
		fmt.Println(failure.Code, failure.Reason, failure.RequestID)
	}
}

// ExampleClient_SendBatch sends many messages and checks the result of each.
func ExampleClient_SendBatch() {
	server := parleytest.Start(exampleTB{})
	defer server.Kill()
	ctx := context.Background()
	client, err := parley.New(server.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	results, err := client.SendBatch(ctx, []parley.Outgoing{
		{ChannelID: "general", Content: "one"},
		{ChannelID: "general", Content: ""},
		{ChannelID: "general", Content: "two"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			fmt.Println(i, "refused:", errors.Is(r.Err, parley.ErrInvalidField))
			continue
		}
		fmt.Println(i, "stored at", r.Receipt.Seq)
	}
	// Output:
	// 0 stored at 1
	// 1 refused: true
	// 2 stored at 2
}

// exampleTB replaces a test's testing.TB.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                   {}
func (exampleTB) Cleanup(func())            {}
func (exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

// Create a channel for a few users, list what is unread, and mark it as read.
func Example_channels() {
	server := parleytest.Start(exampleTB{})
	defer server.Kill()
	ctx := context.Background()
	client, err := parley.New(server.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = client.CreateChannel(ctx, "project-x", parley.MembersOnly(), parley.WithMembers("ann", "bob"))
	if err != nil {
		log.Fatal(err)
	}
	server.Post("project-x", "ann", "shall we?")
	for channel, err := range client.Channels(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(channel.GetChannel().GetChannelId(), channel.GetUnread(), channel.GetLastMessage().GetContent())
	}
	cursor, err := client.MarkRead(ctx, "project-x", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("unread:", cursor.Unread)
	if err := client.RemoveMembers(ctx, "project-x", "bob"); err != nil {
		log.Fatal(err)
	}
	for member, err := range client.Members(ctx, "project-x") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("member:", member.GetUserId())
	}
	// Output:
	// project-x 1 shall we?
	// unread: 0
	// member: ann
	// member: tester
}

// Use a fleet: the client uses one node. When that node fails, its calls and subscriptions fail
// over to the next one.
func Example_fleet() {
	fleet := parleytest.StartFleet(exampleTB{}, 3)
	ctx := context.Background()
	client, err := parley.New(parleytest.Addrs(fleet...)) // "host-a:8080,host-b:8080,host-c:8080"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sub := client.Subscribe(ctx, parley.FromStart("general"))
	defer sub.Close()

	for i, node := range fleet {
		if _, err := client.Send(ctx, "general", fmt.Sprint("message ", i+1)); err != nil {
			log.Fatal(err)
		}
		for event, err := range sub.Events() {
			if err != nil {
				log.Fatal(err)
			}
			if event.Kind == parley.EventSent {
				fmt.Println(event.Seq, event.Message.GetContent())
				break
			}
		}
		if i < 2 {
			node.Kill()
		}
	}
	fleet[2].Kill()
	// Output:
	// 1 message 1
	// 2 message 2
	// 3 message 3
}
