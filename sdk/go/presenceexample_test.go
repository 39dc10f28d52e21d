package parley_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// Be online on a device, and follow who else is. The login token is kept, so that the program
// continues its login when it starts again.
func ExampleClient_Presence() {
	server := parleytest.Start(exampleTB{})
	defer server.Kill()
	server.SetUser("the token of bob", "bob")
	ctx := context.Background()
	client, err := parley.New(server.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	bob, err := parley.New(server.Addr(), parley.WithToken("the token of bob"))
	if err != nil {
		log.Fatal(err)
	}
	defer bob.Close()

	var stored string // from an earlier start of the program
	presence := client.Presence(ctx, parley.Device{Platform: parley.PlatformWeb, ID: "browser-7"},
		parley.WatchUsers("bob"), parley.WithLoginToken(stored))
	defer presence.Close()
	for event, err := range presence.Events() {
		if errors.Is(err, parley.ErrKicked) {
			stored = "" // that login is over
			fmt.Println("signed in on another device")
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		stored = presence.LoginToken()
		if event.Kind != parley.PresenceOfUser {
			continue
		}
		fmt.Println(event.User.GetUserId(), "is on", len(event.User.GetPlatforms()), "platforms")
		if len(event.User.GetPlatforms()) > 0 {
			break
		}
		phone := bob.Presence(ctx, parley.Device{Platform: parley.PlatformIOS, ID: "phone-1"})
		defer phone.Close()
	}
	fmt.Println("the login is kept:", stored != "")
	// Output:
	// bob is on 0 platforms
	// bob is on 1 platforms
	// the login is kept: true
}

// Read the presence of some users once, and list all that are online.
func ExampleClient_PresenceOf() {
	server := parleytest.Start(exampleTB{})
	defer server.Kill()
	ctx := context.Background()
	client, err := parley.New(server.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	states, err := client.PresenceOf(ctx, "ann", "bob")
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range states {
		fmt.Println(user.GetUserId(), "is online:", len(user.GetPlatforms()) > 0)
	}
	for user, err := range client.OnlineUsers(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("online:", user.GetUserId())
	}
	// Output:
	// ann is online: false
	// bob is online: false
}
