package main

import (
	"context"
	"fmt"

	parley "github.com/parleyhq/parley/sdk/go"
)

// sessionOps maps the names of the commands on a session to the functions that execute them.
var sessionOps = map[string]func(ctx context.Context, c *client, args arguments) (any, error){
	"append": func(ctx context.Context, c *client, args arguments) (any, error) {
		m := args.outgoing.toSDK()
		return receiptOf(c.Session(args.SessionID).Append(ctx, parley.SessionRole(args.Role), m.Content,
			parley.WithClientMsgID(m.ClientMsgID), parley.WithMetadata(m.Metadata), parley.WithSender(m.Sender), parley.WithTitle(args.Title)))
	},
	"sessions": func(ctx context.Context, c *client, args arguments) (any, error) {
		return collect("sessions", c.Sessions(ctx, args.UserID), fromSession)
	},
	"renameSession": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.Session(args.SessionID).Rename(ctx, args.Title)
	},
	"deleteSession": func(ctx context.Context, c *client, args arguments) (any, error) {
		return nil, c.Session(args.SessionID).Delete(ctx)
	},
	"cancelMessage": func(ctx context.Context, c *client, args arguments) (any, error) {
		return changeOf(c.Session(args.SessionID).Cancel(ctx, args.MsgID))
	},
}

// openOps maps the names of the commands on an open message to the functions that execute them.
var openOps = map[string]func(ctx context.Context, m *parley.OpenMessage, args arguments) (any, error){
	"writeText": func(_ context.Context, m *parley.OpenMessage, args arguments) (any, error) {
		_, err := m.Write([]byte(args.Content))
		return nil, err
	},
	"ended": func(ctx context.Context, m *parley.OpenMessage, _ arguments) (any, error) {
		select {
		case <-m.Done():
			return map[string]any{"error": toFailure(ctx, m.Err())}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	},
	"complete": func(ctx context.Context, m *parley.OpenMessage, args arguments) (any, error) {
		return changeOf(m.Complete(ctx, contentOf(m, args)))
	},
	"cancelOpen": func(ctx context.Context, m *parley.OpenMessage, args arguments) (any, error) {
		return changeOf(m.Cancel(ctx, contentOf(m, args)))
	},
	"failOpen": func(ctx context.Context, m *parley.OpenMessage, args arguments) (any, error) {
		return changeOf(m.Fail(ctx, contentOf(m, args)))
	},
}

func contentOf(m *parley.OpenMessage, args arguments) string {
	if args.Content == "" {
		return m.Text()
	}
	return args.Content
}

// open opens a message, which lasts until a command or the end of the process ends it.
func (a *agent) open(ctx context.Context, c *client, args arguments) (any, error) {
	a.mu.Lock()
	known := a.opened[args.Message] != nil
	a.mu.Unlock()
	if known {
		return nil, fmt.Errorf("%w: open message %q already exists", errAgent, args.Message)
	}
	session, role := c.Session(args.SessionID), parley.SessionRole(args.Role)
	m, err := session.Open(context.WithoutCancel(ctx), role, parley.WithClientMsgID(args.ClientMsgID))
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.opened[args.Message] = m
	a.mu.Unlock()
	return fromReceipt(m.Receipt()), nil
}

func fromSession(s *parley.SessionInfo) any {
	return map[string]any{
		"sessionId": s.GetSessionId(), "ownerId": s.GetOwnerId(), "title": s.GetTitle(), "createTime": timeOf(s.GetCreateTime()),
		"activeTime": timeOf(s.GetActiveTime()), "headSeq": s.GetHeadSeq(), "count": s.GetCount(), "readSeq": s.GetReadSeq(),
		"unread": s.GetUnread(), "epoch": s.GetEpoch(),
	}
}
