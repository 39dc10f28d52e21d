package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueCreateCommand struct {
	topicArg
	topicSettings

	Partitioner string   `help:"How a key decides the partition: ${enum}. This cannot be changed later." enum:"hash,consistent-hash,round-robin" default:"consistent-hash"`
	Group       []string `help:"A consumer group to create with the topic, which starts at the beginning; may be repeated." placeholder:"GROUP"`

	newGroupFlags `group:"Settings of the groups of --group"`
}

// Run creates a topic and its groups.
func (c *queueCreateCommand) Run(s *session) error {
	topic := &queue.Topic{Name: c.Topic, Partitioner: partitionerOf(c.Partitioner)}
	c.topicSettings.apply(topic)
	err := firstError(c.topicArg.check(), c.topicSettings.check(), checkNames("--group", c.Group), c.newGroupFlags.check())
	if flags := c.newGroupFlags.given(); err == nil && len(c.Group) == 0 && len(flags) > 0 {
		err = usagef("%s: a setting of groups; requires --group", flags[0])
	}
	if err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		made, err := admin.CreateTopic(ctx, topic)
		if err != nil {
			return explainQueue("create", err)
		}
		for _, group := range c.Group {
			if _, err := admin.CreateGroup(ctx, c.Topic, c.group(group)); err != nil {
				return explainQueue("create: "+c.Topic+" is created, but not its group "+group, err)
			}
			made.Groups = append(made.Groups, group)
		}
		text := c.Topic + " is created: " + count(int64(made.GetPartitions()), "partition", "partitions")
		if len(c.Group) > 0 {
			text += ", with " + strings.Join(c.Group, ", ")
		} else {
			text += ", without groups"
		}
		return s.printer().print(topicToJSON(made), text)
	})
}

type queueUpdateCommand struct {
	topicArg
	topicSettings
}

// Run changes the settings whose flags are given.
func (c *queueUpdateCommand) Run(s *session) error {
	if err := firstError(c.topicArg.check(), c.topicSettings.check()); err != nil {
		return err
	}
	if len(c.fields()) == 0 {
		return usagef("update: requires at least one setting")
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		// The retention is replaced as a whole, so its other fields must keep their current values.
		topic, err := admin.Topic(ctx, c.Topic)
		if err != nil {
			return explainQueue("update", err)
		}
		c.apply(topic)
		if topic, err = admin.UpdateTopic(ctx, topic, c.fields()...); err != nil {
			return explainQueue("update", err)
		}
		return showTopic(s, topic)
	})
}

type queueGetCommand struct {
	topicArg
}

// Run shows a topic's settings.
func (c *queueGetCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Topic(ctx, c.Topic)
		if err != nil {
			return explainQueue("get", err)
		}
		return showTopic(s, topic)
	})
}

type queueListCommand struct{}

// Run lists the topics.
func (*queueListCommand) Run(s *session) error {
	topics := func(ctx context.Context, client *parley.Client) iter.Seq2[*queue.Topic, error] {
		return queue.NewAdmin(client).Topics(ctx)
	}
	return list(s, "list", topics, func(p printer, t *queue.Topic) error {
		groups := "no groups"
		if len(t.GetGroups()) > 0 {
			groups = "groups " + strings.Join(t.GetGroups(), ", ")
		}
		text := fmt.Sprintf("%s  %s, %s", t.GetName(), count(int64(t.GetPartitions()), "partition", "partitions"), groups)
		if t.GetPaused() {
			text += ", paused"
		}
		return p.print(topicToJSON(t), text)
	})
}

type queueDeleteCommand struct {
	topicArg

	Confirm string `help:"Confirmation: the topic's name. All of its messages are lost." placeholder:"TOPIC"`
}

// topicEventJSON is the JSON form of a change of a topic.
type topicEventJSON struct {
	Event string `json:"event"`
	Topic string `json:"topic"`
}

// Run deletes a topic.
func (c *queueDeleteCommand) Run(s *session) error {
	if err := firstError(c.check(), checkConfirm(c.Confirm, c.Topic, "everything in "+c.Topic)); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.DeleteTopic(ctx, c.Topic, c.Confirm); err != nil {
			return explainQueue("delete", err)
		}
		return s.printer().print(topicEventJSON{Event: "deleted", Topic: c.Topic}, c.Topic+" is deleted")
	})
}

// checkConfirm returns an error unless confirm is the name of the object that the command removes
// permanently.
func checkConfirm(confirm, name, what string) error {
	if confirm != name {
		return usagef("--confirm %q: permanently removes %s; to confirm, use --confirm %s", confirm, what, name)
	}
	return nil
}

type queuePauseCommand struct{ topicArg }

// Run refuses new messages of a topic.
func (c *queuePauseCommand) Run(s *session) error {
	return c.setPaused(s, "pause", (*queue.Admin).PauseTopic)
}

type queueResumeCommand struct{ topicArg }

// Run accepts new messages of a topic again.
func (c *queueResumeCommand) Run(s *session) error {
	return c.setPaused(s, "resume", (*queue.Admin).ResumeTopic)
}

func (a topicArg) setPaused(
	s *session, what string, set func(a *queue.Admin, ctx context.Context, topic string) (*queue.Topic, error),
) error {
	if err := a.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		topic, err := set(admin, ctx, a.Topic)
		if err != nil {
			return explainQueue(what, err)
		}
		return s.printer().print(topicToJSON(topic), a.Topic+unless(topic.GetPaused(), " is paused", " is not paused"))
	})
}

type queueRepairCommand struct{ topicArg }

// repairedJSON is the JSON form of a repair's result.
type repairedJSON struct {
	Event    string   `json:"event"`
	Topic    string   `json:"topic"`
	Repaired []string `json:"repaired"`
}

// Run creates again what the queue store lost of a topic.
func (c *queueRepairCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		_, missing, err := admin.RepairTopic(ctx, c.Topic)
		if err != nil {
			return explainQueue("repair", err)
		}
		text := c.Topic + ": nothing was missing"
		if len(missing) > 0 {
			text = c.Topic + ": created again: " + oneLine(strings.Join(missing, ", "))
		}
		return s.printer().print(repairedJSON{Event: "repaired", Topic: c.Topic, Repaired: append([]string{}, missing...)}, text)
	})
}
