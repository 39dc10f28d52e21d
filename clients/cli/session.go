package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

type sessionCommand struct {
	Append sessionAppendCommand `cmd:"" help:"Append a message to a session. The first one creates the session."`
	Show   sessionShowCommand   `cmd:"" help:"Show a session's messages, oldest first."`
	Chat   sessionChatCommand   `cmd:"" help:"Talk with an assistant: each line of standard input is a prompt."`
	List   sessionListCommand   `cmd:"" help:"List sessions, those with the latest activity first."`
	Rename sessionRenameCommand `cmd:"" help:"Set the title of a session."`
	Delete sessionDeleteCommand `cmd:"" help:"Delete a session with its messages. Its id can never be used again."`
}

type sessionAppendCommand struct {
	Session string            `arg:"" help:"The session's id."`
	Text    []string          `arg:"" optional:"" help:"The message. Without it, standard input is the message."`
	Role    string            `help:"Who speaks: user, assistant, system or tool. All but user require the action manage." default:"user" enum:"user,assistant,system,tool"`
	ID      string            `name:"id" help:"The message's client_msg_id. The message is stored once, however often it is appended with this id."`
	User    string            `help:"Append in the name of a user other than the token's subject. Requires the action send_as."`
	Title   string            `help:"The title of the session, if the message creates it."`
	Meta    map[string]string `help:"Metadata, as key=value." mapsep:"none"`
}

// Run appends the text or, without one, all of standard input.
func (c *sessionAppendCommand) Run(s *session) error {
	content := strings.Join(c.Text, " ")
	if len(c.Text) == 0 {
		data, err := io.ReadAll(io.LimitReader(s.stdin, 2*maxStdin))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		content = strings.TrimSuffix(string(data), "\n")
	}
	opts := []parley.SendOption{parley.WithClientMsgID(c.ID), parley.WithSender(c.User), parley.WithTitle(c.Title)}
	if len(c.Meta) > 0 {
		opts = append(opts, parley.WithMetadata(c.Meta))
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		r, err := client.Session(c.Session).Append(ctx, parley.SessionRole(c.Role), content, opts...)
		if err != nil {
			return explain("append", err)
		}
		return s.printer().receipt(r, "appended to session "+c.Session)
	})
}

type sessionShowCommand struct {
	Session string `arg:"" help:"The session's id."`
}

// Run writes all messages of a session.
func (c *sessionShowCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) (err error) {
		out := bufio.NewWriter(s.stdout)
		defer func() { err = errors.Join(err, out.Flush()) }()
		p := printer{w: out, stderr: s.stderr, json: s.flags.JSON}
		for m, err := range client.Session(c.Session).Messages(ctx, parley.AfterSeq(0), parley.PageSize(1000)) {
			if err != nil {
				return explain("show", err)
			}
			if err := p.message(m); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		return nil
	})
}

type sessionListCommand struct {
	User  string `help:"The owner of the sessions. Default: the token's subject. Others require the action manage on session:*." placeholder:"ID" xor:"user,all"`
	All   bool   `help:"List the sessions of all users. Requires the action manage on session:*." xor:"user,all"`
	Limit int    `help:"Maximum number of sessions; 0 means all." default:"50"`
}

// sessionJSON is the JSON form of a session.
type sessionJSON struct {
	SessionID  string `json:"session_id"`
	OwnerID    string `json:"owner_id"`
	CreateTime string `json:"create_time"`
	ActiveTime string `json:"active_time"`
	HeadSeq    int64  `json:"head_seq"`
	Count      int64  `json:"count"`
	ReadSeq    int64  `json:"read_seq"`
	Unread     int64  `json:"unread"`
	Epoch      string `json:"epoch"`
	Title      string `json:"title"`
}

// Run writes the sessions of a user, one line for each.
func (c *sessionListCommand) Run(s *session) error {
	if c.Limit < 0 {
		return usagef("--limit must not be negative")
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		n := 0
		list := client.Sessions(ctx, c.User)
		if c.All {
			list = client.AllSessions(ctx)
		}
		for info, err := range list {
			if err != nil {
				return explain("list", err)
			}
			active := info.GetActiveTime().AsTime()
			owner := ""
			if c.All {
				owner = info.GetOwnerId() + "  "
			}
			err := s.printer().print(sessionJSON{
				SessionID: info.GetSessionId(), OwnerID: info.GetOwnerId(), CreateTime: info.GetCreateTime().AsTime().Format(timeFormat),
				ActiveTime: active.Format(timeFormat), HeadSeq: info.GetHeadSeq(), Count: info.GetCount(), ReadSeq: info.GetReadSeq(),
				Unread: info.GetUnread(), Epoch: info.GetEpoch(), Title: info.GetTitle(),
			}, strings.TrimSpace(fmt.Sprintf("%s  %s%s  %d messages, %d unread  %s", active.Local().Format(time.DateTime), owner, info.GetSessionId(),
				info.GetCount(), info.GetUnread(), oneLine(info.GetTitle()))))
			if err != nil {
				return fmt.Errorf("write: %w", err)
			}
			if n++; n == c.Limit {
				return nil
			}
		}
		return nil
	})
}

type sessionRenameCommand struct {
	Session string   `arg:"" help:"The session's id."`
	Title   []string `arg:"" optional:"" help:"The title, up to 256 bytes. Without it, the title is removed."`
}

// Run sets the title of a session.
func (c *sessionRenameCommand) Run(s *session) error {
	title := strings.Join(c.Title, " ")
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.Session(c.Session).Rename(ctx, title); err != nil {
			return explain("rename", err)
		}
		renamed := map[string]string{"event": "renamed", "session_id": c.Session, "title": title}
		return s.printer().print(renamed, "session "+c.Session+" is renamed")
	})
}

type sessionDeleteCommand struct {
	Session string `arg:"" help:"The session's id."`
}

// Run deletes a session.
func (c *sessionDeleteCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.Session(c.Session).Delete(ctx); err != nil {
			return explain("delete", err)
		}
		return s.printer().print(map[string]string{"event": "deleted", "session_id": c.Session}, "session "+c.Session+" is deleted")
	})
}
