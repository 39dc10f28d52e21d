package cli

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueGroupCommand struct {
	Create groupCreateCommand `cmd:"" help:"Create a consumer group."`
	Delete groupDeleteCommand `cmd:"" help:"Delete a consumer group and its pending retries. Its dead letters stay."`
	Seek   groupSeekCommand   `cmd:"" help:"Move a consumer group to another position of the topic. The group must have no consumers."`
}

// groupArgs are the arguments of a command for one group.
type groupArgs struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The consumer group."`
}

func (a groupArgs) check() error {
	return firstError(checkName("<topic>", a.Topic), checkName("<group>", a.Group))
}

// groupEventJSON is the JSON form of a change of a group.
type groupEventJSON struct {
	Event string `json:"event"`
	Topic string `json:"topic"`
	Group string `json:"group"`
}

func (a groupArgs) printResult(s *session, event, text string) error {
	return s.printer().print(groupEventJSON{Event: event, Topic: a.Topic, Group: a.Group},
		fmt.Sprintf("%s: %s %s", a.Topic, a.Group, text))
}

type groupCreateCommand struct {
	groupArgs

	From positionFlag `help:"Where the group starts to read: beginning, end or a time." default:"beginning" placeholder:"POSITION"`
}

// Run creates a group.
func (c *groupCreateCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.CreateGroup(ctx, c.Topic, c.Group, c.From.Start); err != nil {
			return explainQueue("group create", err)
		}
		return c.printResult(s, "created", "is created "+c.From.text)
	})
}

type groupDeleteCommand struct {
	groupArgs

	Confirm string `help:"Confirmation: the group's name. Its pending retries are lost." placeholder:"GROUP"`
}

// Run deletes a group.
func (c *groupDeleteCommand) Run(s *session) error {
	if err := firstError(c.check(), checkConfirm(c.Confirm, c.Group, "the state of "+c.Group)); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.DeleteGroup(ctx, c.Topic, c.Group, c.Confirm); err != nil {
			return explainQueue("group delete", err)
		}
		return c.printResult(s, "deleted", "is deleted")
	})
}

type groupSeekCommand struct {
	groupArgs

	From positionFlag `help:"Where the group continues to read: beginning, end or a time. Its pending retries are dropped." required:"" placeholder:"POSITION"`
}

// Run moves a group to another position of its topic.
func (c *groupSeekCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.SeekGroup(ctx, c.Topic, c.Group, c.From.Start); err != nil {
			return explainQueue("group seek", err)
		}
		return c.printResult(s, "moved", "is moved "+c.From.text)
	})
}
