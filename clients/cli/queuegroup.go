package cli

import (
	"context"
	"fmt"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueGroupCommand struct {
	Create groupCreateCommand `cmd:"" help:"Create a consumer group."`
	Update groupUpdateCommand `cmd:"" help:"Change a group's settings. Settings without a flag do not change."`
	Get    groupGetCommand    `cmd:"" help:"Show a group's settings."`
	List   groupListCommand   `cmd:"" help:"List the groups of a topic."`
	Delete groupDeleteCommand `cmd:"" help:"Delete a consumer group and its retries. Its dead letters stay."`
	Pause  groupPauseCommand  `cmd:"" help:"Stop deliveries to a group. Messages in flight can still be settled."`
	Resume groupResumeCommand `cmd:"" help:"Deliver to a group again."`
	Seek   groupSeekCommand   `cmd:"" help:"Move a group to another position of the topic. Its consumers lose the messages that they work on, and its retries are dropped."`
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
	newGroupFlags

	From positionFlag `help:"Where the group starts to read: beginning, end or a time." default:"beginning" placeholder:"POSITION"`
}

// Run creates a group.
func (c *groupCreateCommand) Run(s *session) error {
	if err := firstError(c.groupArgs.check(), c.newGroupFlags.check()); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		group := c.group(c.Group)
		group.Start = c.From.Start
		made, err := admin.CreateGroup(ctx, c.Topic, group)
		if err != nil {
			return explainQueue("group create", err)
		}
		return s.printer().print(groupToJSON(c.Topic, made), fmt.Sprintf("%s: %s is created, from %s", c.Topic, c.Group, c.From.text))
	})
}

type groupUpdateCommand struct {
	groupArgs
	groupSettings
}

// Run changes the settings whose flags are given.
func (c *groupUpdateCommand) Run(s *session) error {
	if err := firstError(c.groupArgs.check(), c.groupSettings.check()); err != nil {
		return err
	}
	if len(c.fields()) == 0 {
		return usagef("group update: requires at least one setting")
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		// The retry policy is replaced as a whole, so its other fields must keep their current values.
		group, err := admin.Group(ctx, c.Topic, c.Group)
		if err != nil {
			return explainQueue("group update", err)
		}
		c.apply(group)
		if group, err = admin.UpdateGroup(ctx, c.Topic, group, c.fields()...); err != nil {
			return explainQueue("group update", err)
		}
		return showGroup(s, c.Topic, group)
	})
}

type groupGetCommand struct{ groupArgs }

// Run shows a group's settings.
func (c *groupGetCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		group, err := admin.Group(ctx, c.Topic, c.Group)
		if err != nil {
			return explainQueue("group get", err)
		}
		return showGroup(s, c.Topic, group)
	})
}

type groupListCommand struct{ topicArg }

// Run lists the groups of a topic.
func (c *groupListCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		groups, err := admin.Groups(ctx, c.Topic)
		if err != nil {
			return explainQueue("group list", err)
		}
		for _, g := range groups {
			text := fmt.Sprintf("%s  %s, order %s, %s", g.GetName(), modeName(g), orderName(g),
				count(int64(g.GetRetry().GetMaxAttempts()), "attempt", "attempts"))
			if g.GetPaused() {
				text += ", paused"
			}
			if err := s.printer().print(groupToJSON(c.Topic, g), text); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		return nil
	})
}

type groupDeleteCommand struct {
	groupArgs

	Confirm string `help:"Confirmation: the group's name. Its retries are lost." placeholder:"GROUP"`
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

type groupPauseCommand struct{ groupArgs }

// Run stops deliveries to a group.
func (c *groupPauseCommand) Run(s *session) error {
	return c.setPaused(s, "group pause", (*queue.Admin).PauseGroup)
}

type groupResumeCommand struct{ groupArgs }

// Run delivers to a group again.
func (c *groupResumeCommand) Run(s *session) error {
	return c.setPaused(s, "group resume", (*queue.Admin).ResumeGroup)
}

func (a groupArgs) setPaused(
	s *session, what string, set func(a *queue.Admin, ctx context.Context, topic, group string) (*queue.Group, error),
) error {
	if err := a.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		group, err := set(admin, ctx, a.Topic, a.Group)
		if err != nil {
			return explainQueue(what, err)
		}
		return s.printer().print(groupToJSON(a.Topic, group), a.Topic+": "+a.Group+unless(group.GetPaused(), " is paused", " is not paused"))
	})
}

type groupSeekCommand struct {
	groupArgs

	From positionFlag `help:"Where the group continues to read: beginning, end or a time." required:"" placeholder:"POSITION"`
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
		return c.printResult(s, "moved", "is moved to "+c.From.text)
	})
}
