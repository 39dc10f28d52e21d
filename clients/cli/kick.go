package cli

import (
	"context"
	"fmt"
	"strings"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/admin"
)

type kickCommand struct {
	User       string `arg:"" help:"The user whose streams end."`
	Device     string `help:"End only streams with presence of this device." placeholder:"ID"`
	Platform   string `help:"End only streams with presence on this platform, as of presence connect." placeholder:"PLATFORM"`
	Connection string `help:"End only the stream with presence that has this connection id." placeholder:"ID"`
	Reason     string `help:"What the clients get as the reason." placeholder:"TEXT"`
}

// kickJSON is the JSON form of what a kick did.
type kickJSON struct {
	Ended int `json:"ended"`
	// Nodes has how many streams each node has ended.
	Nodes      map[string]int32 `json:"nodes"`
	Unanswered []string         `json:"unanswered_node_ids"`
}

// Run ends streams of a user. It fails if a node did not answer.
func (c *kickCommand) Run(s *session) error {
	var platform parley.Platform
	if c.Platform != "" {
		var err error
		if platform, err = parsePlatform(c.Platform); err != nil {
			return err
		}
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		kicked, err := admin.New(client).KickUser(ctx, c.User, admin.Kick{
			DeviceID: c.Device, Platform: platform, ConnectionID: c.Connection, Reason: c.Reason,
		})
		if err != nil {
			return explain("kick", err)
		}
		out := kickJSON{Nodes: map[string]int32{}, Unanswered: kicked.GetUnansweredNodeIds()}
		for _, n := range kicked.GetNodes() {
			out.Nodes[n.GetNodeId()] = n.GetEnded()
			out.Ended += int(n.GetEnded())
		}
		if err := s.printer().print(out, fmt.Sprintf("user %s: %d streams ended on %d nodes", c.User, out.Ended, len(out.Nodes))); err != nil {
			return err
		}
		if len(out.Unanswered) > 0 {
			return fmt.Errorf("kick: these nodes did not answer: %s; repeat the command", strings.Join(out.Unanswered, ", "))
		}
		return nil
	})
}
