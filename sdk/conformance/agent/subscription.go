package main

import (
	"context"

	parley "github.com/parleyhq/parley/sdk/go"
)

// subscription is a subscription of the SDK and all states that it has reported.
type subscription struct {
	*parley.Subscription

	states
}

// subscriptionOps maps the names of the commands on a subscription to the functions that execute
// them.
var subscriptionOps = map[string]func(ctx context.Context, s *subscription, args arguments) (any, error){
	"take": func(ctx context.Context, s *subscription, args arguments) (any, error) {
		events := []any{}
		limited, cancel := context.WithTimeout(ctx, millis(args.TimeoutMs))
		defer cancel()
		for range max(1, args.Count) {
			e, err := s.Next(limited)
			if err != nil && limited.Err() != nil && ctx.Err() == nil && s.Err() == nil {
				break
			}
			if err != nil {
				return map[string]any{"events": events}, err
			}
			events = append(events, fromEvent(e))
		}
		return map[string]any{"events": events}, nil
	},
	"position": func(_ context.Context, s *subscription, args arguments) (any, error) {
		p, ok := s.Position(args.ChannelID)
		if !ok {
			return nil, nil //nolint:nilnil // an answer without a result
		}
		return map[string]any{"position": fromPosition(p)}, nil
	},
	"states": func(_ context.Context, s *subscription, _ arguments) (any, error) { return s.result(), nil },
	"add": func(ctx context.Context, s *subscription, args arguments) (any, error) {
		return nil, s.Add(ctx, toStarts(args.Starts)...)
	},
	"remove": func(ctx context.Context, s *subscription, args arguments) (any, error) {
		return nil, s.Remove(ctx, args.ChannelIDs...)
	},
	"closeSub": func(_ context.Context, s *subscription, _ arguments) (any, error) {
		s.Close()
		return nil, nil //nolint:nilnil // an answer without a result
	},
}
