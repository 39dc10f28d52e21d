package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

// client is a client of the SDK and the number of calls of its token source.
type client struct {
	*parley.Client

	tokenCalls atomic.Int64
}

func (a *agent) newClient(args arguments) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clients[args.Client] != nil {
		return fmt.Errorf("%w: client %q already exists", errAgent, args.Client)
	}
	c := new(client)
	opts := []parley.Option{parley.WithLogger(a.log)}
	if args.Tokens != nil {
		opts = append(opts, parley.WithTokenSource(c.source(args.Tokens)))
	} else {
		opts = append(opts, parley.WithToken(args.Token))
	}
	if args.AttemptTimeoutMs != 0 {
		opts = append(opts, parley.WithAttemptTimeout(millis(args.AttemptTimeoutMs)))
	}
	if args.CallTimeoutMs != nil {
		opts = append(opts, parley.WithCallTimeout(millis(*args.CallTimeoutMs)))
	}
	if b := args.Backoff; b != nil {
		opts = append(opts, parley.WithBackoff(parley.Backoff{Base: millis(b.BaseMs), Max: millis(b.MaxMs)}))
	}
	protocols := map[string]parley.Protocol{
		"": parley.ProtocolConnect, "connect": parley.ProtocolConnect, "grpc": parley.ProtocolGRPC, "grpc-web": parley.ProtocolGRPCWeb,
	}
	protocol, ok := protocols[args.Protocol]
	if !ok {
		return fmt.Errorf("%w: unknown protocol %q", errAgent, args.Protocol)
	}
	var err error
	c.Client, err = parley.New(strings.Join(args.Addresses, ","), append(opts, parley.WithProtocol(protocol))...)
	if err == nil {
		a.clients[args.Client] = c
	}
	return err
}

// source returns a token source. Its n-th call returns the n-th element of the list, later calls
// the last element.
func (c *client) source(list []sourced) parley.TokenSource {
	return func(ctx context.Context) (string, error) {
		n := int(c.tokenCalls.Add(1))
		next := list[min(n, len(list))-1]
		select {
		case <-time.After(millis(next.DelayMs)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		switch {
		case next.Final:
			return "", fmt.Errorf("%s: %w", next.Error, parley.ErrTokenInvalid)
		case next.Error != "":
			return "", errors.New(next.Error)
		}
		return next.Token, nil
	}
}

// clientOps maps the names of the commands on a client to the functions that execute them.
var clientOps = map[string]func(ctx context.Context, c *client, args arguments) (any, error){
	"closeClient": func(_ context.Context, c *client, _ arguments) (any, error) {
		c.Close()
		return nil, nil //nolint:nilnil // an answer without a result
	},
	"tokenCalls": func(_ context.Context, c *client, _ arguments) (any, error) {
		return map[string]any{"calls": c.tokenCalls.Load()}, nil
	},
	"signOut": func(ctx context.Context, c *client, _ arguments) (any, error) {
		return nil, c.SignOut(ctx)
	},
	"send": func(ctx context.Context, c *client, args arguments) (any, error) {
		m := args.outgoing.toSDK()
		return receiptOf(c.Send(ctx, m.ChannelID, m.Content, parley.WithClientMsgID(m.ClientMsgID),
			parley.WithType(m.Type), parley.WithMetadata(m.Metadata), parley.WithSender(m.Sender)))
	},
	"sendBatch": sendBatch,
	"edit": func(ctx context.Context, c *client, args arguments) (any, error) {
		m := args.outgoing.toSDK()
		return changeOf(c.Edit(ctx, m.ChannelID, args.MsgID, m.Content, parley.WithClientMsgID(m.ClientMsgID)))
	},
	"recall": func(ctx context.Context, c *client, args arguments) (any, error) {
		return changeOf(c.Recall(ctx, args.ChannelID, args.MsgID, parley.WithClientMsgID(args.ClientMsgID)))
	},
	"get": func(ctx context.Context, c *client, args arguments) (any, error) {
		m, epoch, err := c.Get(ctx, args.ChannelID, args.MsgID)
		if err != nil {
			return nil, err
		}
		return map[string]any{"message": fromMessage(m), "epoch": epoch}, nil
	},
	"history": func(ctx context.Context, c *client, args arguments) (any, error) {
		opts := []parley.HistoryOption{parley.PageSize(args.PageSize), parley.Limit(args.Limit)}
		if args.AfterSeq != nil {
			opts = append(opts, parley.AfterSeq(*args.AfterSeq))
		}
		if args.BeforeSeq != nil {
			opts = append(opts, parley.BeforeSeq(*args.BeforeSeq))
		}
		return collect("messages", c.History(ctx, args.ChannelID, opts...), fromMessage)
	},
	"channels": func(ctx context.Context, c *client, _ arguments) (any, error) {
		return collect("channels", c.Channels(ctx), fromUserChannel)
	},
	"members": func(ctx context.Context, c *client, args arguments) (any, error) {
		return collect("members", c.Members(ctx, args.ChannelID), fromMember)
	},
	"createChannel": func(ctx context.Context, c *client, args arguments) (any, error) {
		opts := []parley.ChannelOption{parley.WithMembers(args.Members...), parley.WithIdempotencyKey(args.IdempotencyKey)}
		if args.MembersOnly {
			opts = append(opts, parley.MembersOnly())
		}
		made, err := c.CreateChannel(ctx, args.ChannelID, opts...)
		if err != nil {
			return nil, err
		}
		return map[string]any{"channel": fromChannel(made)}, nil
	},
	"setMembersOnly": func(ctx context.Context, c *client, args arguments) (any, error) {
		changed, err := c.SetMembersOnly(ctx, args.ChannelID, args.MembersOnly)
		if err != nil {
			return nil, err
		}
		return map[string]any{"channel": fromChannel(changed)}, nil
	},
	"deleteChannel": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.DeleteChannel(ctx, args.ChannelID)
	},
	"addMembers": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.AddMembers(ctx, args.ChannelID, args.UserIDs...)
	},
	"removeMembers": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.RemoveMembers(ctx, args.ChannelID, args.UserIDs...)
	},
	"getPresence": func(ctx context.Context, c *client, args arguments) (any, error) {
		all := []any{}
		users, err := c.PresenceOf(ctx, args.UserIDs...)
		for _, u := range users {
			all = append(all, fromUserPresence(u))
		}
		return map[string]any{"users": all}, err
	},
	"onlineUsers": func(ctx context.Context, c *client, _ arguments) (any, error) {
		return collect("users", c.OnlineUsers(ctx), fromUserPresence)
	},
	"markRead": func(ctx context.Context, c *client, args arguments) (any, error) {
		cursor, err := c.MarkRead(ctx, args.ChannelID, args.Seq)
		if err != nil {
			return nil, err
		}
		return map[string]any{"seq": cursor.Seq, "unread": cursor.Unread, "epoch": cursor.Epoch}, nil
	},
	"typing": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.Typing(ctx, args.ChannelID)
	},
}

func sendBatch(ctx context.Context, c *client, args arguments) (any, error) {
	messages := make([]parley.Outgoing, len(args.Messages))
	for i, m := range args.Messages {
		messages[i] = m.toSDK()
	}
	results, err := c.SendBatch(ctx, messages)
	told := make([]map[string]any, len(results))
	for i, r := range results {
		if r.Err != nil {
			told[i] = map[string]any{"error": toFailure(ctx, r.Err)}
			continue
		}
		told[i] = map[string]any{"receipt": fromReceipt(r.Receipt)}
	}
	result := map[string]any{"results": told}
	if ctx.Err() != nil || endedByDeadline(err) {
		return result, err
	}
	// err needs no answer of its own: a refusal of the whole call is the error of each of its items
	// too.
	return result, nil
}

// collect returns all items of a list, under name. If the list fails, it returns the items before
// the error too.
func collect[T any](name string, list iter.Seq2[T, error], convert func(T) any) (any, error) {
	all := []any{}
	for one, err := range list {
		if err != nil {
			return map[string]any{name: all}, err
		}
		all = append(all, convert(one))
	}
	return map[string]any{name: all}, nil
}
