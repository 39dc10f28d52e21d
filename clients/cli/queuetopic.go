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
	patience
	topicArg
	topicSettings

	Partitioner string   `help:"How a key becomes a partition: ${enum}. It can't be changed." enum:"hash,consistent-hash,round-robin" default:"hash"`
	StrictOrder bool     `help:"One unsettled message of a key at a time, over retries too. It can't be changed."`
	Group       []string `help:"A consumer group to make with the topic, at its beginning; may be repeated." placeholder:"GROUP"`
}

// Run makes a topic and its groups.
func (c *queueCreateCommand) Run(s *session) error {
	topic := &queue.Topic{Name: c.Topic, Partitioner: partitionerOf(c.Partitioner), StrictOrder: c.StrictOrder}
	c.apply(topic)
	if err := firstOf(c.topicArg.check(), c.topicSettings.check(), checkNames("--group", c.Group)); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		made, err := admin.CreateTopic(ctx, topic)
		if err != nil {
			return explainQueue("create", err)
		}
		for _, group := range c.Group {
			if err := admin.CreateGroup(ctx, c.Topic, group, queue.Start{}); err != nil {
				return explainQueue("create: "+c.Topic+" is made, but not its group "+group, err)
			}
			made.Groups = append(made.Groups, group)
		}
		text := c.Topic + " is made: " + count(int64(made.GetPartitions()), "partition", "partitions")
		if len(c.Group) > 0 {
			text += ", with " + strings.Join(c.Group, ", ")
		} else {
			text += ", without groups"
		}
		return s.printer().print(topicToJSON(made), text)
	})
}

type queueUpdateCommand struct {
	patience
	topicArg
	topicSettings
}

// Run changes what flags name of a topic's settings.
func (c *queueUpdateCommand) Run(s *session) error {
	if err := firstOf(c.topicArg.check(), c.topicSettings.check()); err != nil {
		return err
	}
	if len(c.fields()) == 0 {
		return usagef("update: no flag names a setting")
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		// A policy is replaced as a whole, so what no flag names is taken from what is there.
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
	patience
	topicArg
}

// Run shows a topic's settings.
func (c *queueGetCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Topic(ctx, c.Topic)
		if err != nil {
			return explainQueue("get", err)
		}
		return showTopic(s, topic)
	})
}

type queueListCommand struct{ patience }

// Run lists the topics.
func (c *queueListCommand) Run(s *session) error {
	topics := func(ctx context.Context, client *parley.Client) iter.Seq2[*queue.Topic, error] {
		return queue.NewAdmin(client).Topics(ctx)
	}
	return list(s, c.Timeout, "list", topics, func(p printer, t *queue.Topic) error {
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
	patience
	topicArg

	Confirm string `help:"The topic's name again: everything in it is lost." placeholder:"TOPIC"`
}

// topicEventJSON says for programs what was done to a topic.
type topicEventJSON struct {
	Event string `json:"event"`
	Topic string `json:"topic"`
}

// Run deletes a topic.
func (c *queueDeleteCommand) Run(s *session) error {
	if err := firstOf(c.check(), checkConfirm(c.Confirm, c.Topic, "everything in "+c.Topic)); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		if err := admin.DeleteTopic(ctx, c.Topic, c.Confirm); err != nil {
			return explainQueue("delete", err)
		}
		return s.printer().print(topicEventJSON{Event: "deleted", Topic: c.Topic}, c.Topic+" is deleted")
	})
}

// checkConfirm wants the name of what is removed for good.
func checkConfirm(confirm, name, what string) error {
	if confirm != name {
		return usagef("--confirm %q: %s is removed for good; to do it give --confirm %s", confirm, what, name)
	}
	return nil
}

type queuePauseCommand struct {
	patience
	topicArg

	Produce bool `help:"Only refuse new messages."`
	Consume bool `help:"Only deliver nothing more."`
}

// Run pauses a topic.
func (c *queuePauseCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Pause(ctx, c.Topic, c.Produce, c.Consume)
		if err != nil {
			return explainQueue("pause", err)
		}
		return s.printer().print(topicToJSON(topic), c.Topic+" is paused: "+pausedText(topic))
	})
}

type queueResumeCommand struct {
	patience
	topicArg
}

// Run undoes a pause.
func (c *queueResumeCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		topic, err := admin.Resume(ctx, c.Topic)
		if err != nil {
			return explainQueue("resume", err)
		}
		return s.printer().print(topicToJSON(topic), c.Topic+" goes on")
	})
}
