package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueGroupCommand struct {
	Create groupCreateCommand `cmd:"" help:"Make a consumer group."`
	Delete groupDeleteCommand `cmd:"" help:"Delete a consumer group with all that waits in it for a retry; its dead letters stay."`
	Seek   groupSeekCommand   `cmd:"" help:"Move a consumer group that has no consumers to another place of the topic."`
}

// groupArgs are the arguments of whatever is about one group.
type groupArgs struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The consumer group."`
}

func (a groupArgs) check() error {
	return firstOf(checkName("<topic>", a.Topic), checkName("<group>", a.Group))
}

// groupEventJSON says for programs what was done to a group.
type groupEventJSON struct {
	Event string `json:"event"`
	Topic string `json:"topic"`
	Group string `json:"group"`
}

func (a groupArgs) done(s *session, event, text string) error {
	return s.printer().print(groupEventJSON{Event: event, Topic: a.Topic, Group: a.Group},
		fmt.Sprintf("%s: %s %s", a.Topic, a.Group, text))
}

type groupCreateCommand struct {
	patience
	groupArgs

	Start place `help:"Where it begins: beginning, end or a time. Default: beginning." placeholder:"PLACE"`
}

// Run makes a group.
func (c *groupCreateCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.CreateGroup(ctx, c.Topic, c.Group, c.Start.Start); err != nil {
			return explainQueue("group create", err)
		}
		return c.done(s, "created", "is made, "+c.Start.text())
	})
}

type groupDeleteCommand struct {
	patience
	groupArgs

	Confirm string `help:"The group's name again: what waits in it for a retry is lost." placeholder:"GROUP"`
}

// Run deletes a group.
func (c *groupDeleteCommand) Run(s *session) error {
	if err := firstOf(c.check(), checkConfirm(c.Confirm, c.Group, "what "+c.Group+" has to do yet")); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.DeleteGroup(ctx, c.Topic, c.Group, c.Confirm); err != nil {
			return explainQueue("group delete", err)
		}
		return c.done(s, "deleted", "is deleted")
	})
}

type groupSeekCommand struct {
	patience
	groupArgs

	Start place `help:"Where it begins anew: beginning, end or a time. What it holds for a retry is dropped." required:"" placeholder:"PLACE"`
}

// Run moves a group.
func (c *groupSeekCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.SeekGroup(ctx, c.Topic, c.Group, c.Start.Start); err != nil {
			return explainQueue("group seek", err)
		}
		return c.done(s, "moved", "is moved, "+c.Start.text())
	})
}

// text says where a group begins.
func (p place) text() string {
	switch {
	case p.End:
		return "at the end"
	case !p.Time.IsZero():
		return "at " + p.Time.Local().Format(time.DateTime)
	default:
		return "at the beginning"
	}
}
