package main

import (
	"context"

	parley "github.com/parleyhq/parley/sdk/go"
	first "github.com/parleyhq/parley/sdk/go/queue"
)

// This file ends with the first design of the queues, and so does the flag --next.

// nodeEnv returns variables for the nodes.
func (f *flags) nodeEnv() []string {
	if !f.Next {
		return nil
	}
	return []string{"PARLEY_QUEUES_NEXT=true"}
}

// programEnv adds to the variables for examples/wordindex.
func (f *flags) programEnv(env ...string) []string {
	if !f.Next {
		return env
	}
	return append(env, "WORDINDEX_NEXT=true")
}

func firstProgress(ctx context.Context, c *parley.Client) (progress, error) {
	total, _, err := first.NewAdmin(c).Stats(ctx, topic)
	if err != nil {
		return progress{}, err
	}
	for _, g := range total.GetGroups() {
		if g.GetGroup() == group {
			return progress{
				produced: total.GetProduced(), acked: g.GetAcked(), dead: g.GetDead(),
				left: total.GetDelayed() + g.GetUnread() + g.GetPending() + g.GetRetrying() + g.GetParked(),
			}, nil
		}
	}
	return progress{}, errNoGroup
}
