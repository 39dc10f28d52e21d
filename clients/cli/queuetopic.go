package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueCreateCommand struct {
	topicArg
	topicSettings

	Partitioner string   `help:"How a key decides the partition: ${enum}. This cannot be changed later." enum:"hash,consistent-hash,round-robin" default:"consistent-hash"`
	StrictOrder bool     `help:"Deliver at most one unsettled message per key at a time, also across retries. This cannot be changed later."`
	Group       []string `help:"A consumer group to create with the topic, which starts at the beginning; may be repeated." placeholder:"GROUP"`
}

// Run creates a topic and its groups.
func (c *queueCreateCommand) Run(s *session) error {
	topic := &queue.Topic{Name: c.Topic, Partitioner: partitionerOf(c.Partitioner), StrictOrder: c.StrictOrder}
	c.apply(topic)
	if err := firstError(c.topicArg.check(), c.topicSettings.check(), checkNames("--group", c.Group)); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		made, err := admin.CreateTopic(ctx, topic)
		if err != nil {
			return explainQueue("create", err)
		}
		for _, group := range c.Group {
			if err := admin.CreateGroup(ctx, c.Topic, group, queue.FromBeginning()); err != nil {
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
		// A policy is replaced as a whole, so its other fields must keep their current values.
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
		if t.GetStrictOrder() {
			text += ", strict order"
		}
		if paused := pausedText(t); paused != "" {
			text += ", paused: " + paused
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

// operationFlags select the operations of a pause or a resume. A command that selects none fails.
type operationFlags struct {
	Produce bool `help:"New messages: produce and schedule."`
	Consume bool `help:"Deliveries to consumers."`
}

func (f operationFlags) check(what string) error {
	if !f.Produce && !f.Consume {
		return usagef("%s: requires --produce, --consume or both", what)
	}
	return nil
}

func (f operationFlags) operations() []queue.Operation {
	var operations []queue.Operation
	if f.Produce {
		operations = append(operations, queue.Produce)
	}
	if f.Consume {
		operations = append(operations, queue.Consume)
	}
	return operations
}

type queuePauseCommand struct {
	topicArg
	operationFlags
}

// Run pauses operations of a topic.
func (c *queuePauseCommand) Run(s *session) error {
	if err := firstError(c.topicArg.check(), c.operationFlags.check("pause")); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Pause(ctx, c.Topic, c.operations()...)
		if err != nil {
			return explainQueue("pause", err)
		}
		return s.printer().print(topicToJSON(topic), pausedLine(topic))
	})
}

type queueResumeCommand struct {
	topicArg
	operationFlags
}

// Run resumes operations of a topic.
func (c *queueResumeCommand) Run(s *session) error {
	if err := firstError(c.topicArg.check(), c.operationFlags.check("resume")); err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Resume(ctx, c.Topic, c.operations()...)
		if err != nil {
			return explainQueue("resume", err)
		}
		return s.printer().print(topicToJSON(topic), pausedLine(topic))
	})
}

// pausedLine returns a line with the paused operations of a topic.
func pausedLine(t *queue.Topic) string {
	if paused := pausedText(t); paused != "" {
		return t.GetName() + " is paused: " + paused
	}
	return t.GetName() + " is not paused"
}
