package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// states records the states that a subscription or a presence reports. Safe for concurrent use.
type states struct {
	mu  sync.Mutex
	all []any
}

// onState records a new state.
func (s *states) onState(c parley.StateChange) {
	entry := map[string]any{"state": c.State.String(), "waitMs": inMillis(c.Wait), "addr": c.Addr}
	if c.Err != nil {
		entry["error"] = fromAny(c.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, entry)
}

// result returns all states as the result of a command.
func (s *states) result() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"states": append([]any{}, s.all...)}
}

// presence is a presence of the SDK and all states that it has reported.
type presence struct {
	*parley.Presence

	states
}

// connect starts a presence, which lasts until a command or the end of the input closes it.
func (a *agent) connect(c *client, args arguments) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.presences[args.Presence] != nil {
		return fmt.Errorf("%w: presence %q already exists", errAgent, args.Presence)
	}
	p := new(presence)
	device := parley.Device{Platform: parley.Platform(parleyv1.Platform_value["PLATFORM_"+args.Platform]), ID: args.DeviceID}
	opts := []parley.PresenceOption{
		parley.OnState(p.onState), parley.WatchUsers(args.UserIDs...), parley.WatchChannels(args.ChannelIDs...),
		parley.WithLoginToken(args.LoginToken),
	}
	if args.Background {
		opts = append(opts, parley.InBackground())
	}
	if args.Invisible {
		opts = append(opts, parley.Invisible())
	}
	p.Presence = c.Presence(context.Background(), device, opts...) //nolint:forbidigo // it outlives the command
	a.presences[args.Presence] = p
	return nil
}

// presenceOps maps the names of the commands on a presence to the functions that execute them.
var presenceOps = map[string]func(ctx context.Context, p *presence, args arguments) (any, error){
	"takePresence": func(ctx context.Context, p *presence, args arguments) (any, error) {
		events := []any{}
		limited, cancel := context.WithTimeout(ctx, millis(args.TimeoutMs))
		defer cancel()
		for range max(1, args.Count) {
			e, err := p.Next(limited)
			if err != nil && limited.Err() != nil && ctx.Err() == nil && p.Err() == nil {
				break
			}
			if err != nil {
				return map[string]any{"events": events}, err
			}
			events = append(events, fromPresenceEvent(e))
		}
		return map[string]any{"events": events}, nil
	},
	"presenceStates": func(_ context.Context, p *presence, _ arguments) (any, error) { return p.result(), nil },
	"presenceInfo": func(_ context.Context, p *presence, _ arguments) (any, error) {
		return map[string]any{"loginToken": p.LoginToken(), "connectionId": p.ConnectionID(), "lagging": p.Lagging()}, nil
	},
	"userPresence": func(_ context.Context, p *presence, args arguments) (any, error) {
		u, ok := p.User(args.UserID)
		if !ok {
			return nil, nil //nolint:nilnil // an answer without a result
		}
		return map[string]any{"user": fromUserPresence(u)}, nil
	},
	"channelPresence": func(_ context.Context, p *presence, args arguments) (any, error) {
		ch, ok := p.Channel(args.ChannelID)
		if !ok {
			return nil, nil //nolint:nilnil // an answer without a result
		}
		return map[string]any{"channel": fromChannelPresence(ch)}, nil
	},
	"watch": func(ctx context.Context, p *presence, args arguments) (any, error) {
		return nil, p.Watch(ctx, args.UserIDs...)
	},
	"unwatch": func(ctx context.Context, p *presence, args arguments) (any, error) {
		return nil, p.Unwatch(ctx, args.UserIDs...)
	},
	"watchChannel": func(ctx context.Context, p *presence, args arguments) (any, error) {
		return nil, p.WatchChannel(ctx, args.ChannelID)
	},
	"unwatchChannel": func(ctx context.Context, p *presence, args arguments) (any, error) {
		return nil, p.UnwatchChannel(ctx, args.ChannelID)
	},
	"setBackground": func(ctx context.Context, p *presence, args arguments) (any, error) {
		return nil, p.SetBackground(ctx, args.Background)
	},
	"closePresence": func(_ context.Context, p *presence, _ arguments) (any, error) {
		p.Close()
		return nil, nil //nolint:nilnil // an answer without a result
	},
}

func fromPresenceEvent(e parley.PresenceEvent) any {
	told := map[string]any{"kind": e.Kind.String()}
	switch e.Kind {
	case parley.PresenceOfUser:
		told["user"] = fromUserPresence(e.User)
	case parley.PresenceOfChannel:
		told["channel"] = fromChannelPresence(e.Channel)
	case parley.PresenceChannelLost:
		told["channelId"] = e.Channel.GetChannelId()
	case parley.PresenceUserLost:
		told["userId"] = e.User.GetUserId()
	case parley.PresenceLagging:
		told["lagging"] = e.Lagging
	}
	return told
}

func fromUserPresence(u *parley.UserPresence) any {
	platforms := []any{}
	for _, p := range u.GetPlatforms() {
		name := strings.TrimPrefix(p.GetPlatform().String(), "PLATFORM_")
		platforms = append(platforms, map[string]any{"platform": name, "background": p.GetBackground()})
	}
	return map[string]any{"userId": u.GetUserId(), "platforms": platforms}
}

func fromChannelPresence(ch *parley.ChannelPresence) any {
	online := []any{}
	for _, u := range ch.GetOnline() {
		online = append(online, fromUserPresence(u))
	}
	return map[string]any{
		"channelId": ch.GetChannelId(), "onlineCount": ch.GetOnlineCount(), "memberCount": ch.GetMemberCount(), "online": online,
	}
}
