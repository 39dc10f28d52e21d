// Command chaos runs a fleet of nodes under the load of one harness, injects faults according to a
// schedule, and reports whether every promise was kept. It exits with 1 if a promise was broken or
// the run failed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9/logging"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/chaos/messages"
	"github.com/parleyhq/parley/chaos/presence"
	"github.com/parleyhq/parley/chaos/queues"
)

// harnesses are all harnesses; the first is the default.
var harnesses = []*chaos.Harness{messages.Harness(), queues.Harness(), queues.Promotion(), presence.Harness()}

func main() {
	ctx := context.Background()
	if len(os.Args) == 2 && os.Args[1] == queues.ConsumeFlag {
		if err := queues.Consume(ctx, os.Stdin, os.Stdout); err != nil {
			os.Exit(1) // os.Stdin had no valid configuration of a consumer
		}
		return
	}
	logging.Disable() // go-redis reports every connection that a fault breaks
	code, err := chaos.Main(ctx, os.Args[1:], os.Stdout, harnesses...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	os.Exit(code)
}
