package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

type channelCommand struct {
	Create  createCommand        `cmd:"" help:"Make a channel; you become a member. Wants the capability manage."`
	Add     addMembersCommand    `cmd:"" help:"Make users members of a channel."`
	Remove  removeMembersCommand `cmd:"" help:"Take users off a channel."`
	Members membersCommand       `cmd:"" help:"List a channel's members."`
	List    myChannelsCommand    `cmd:"" help:"List your channels, with what is unread."`
}

type createCommand struct {
	patience
	Channel     string   `arg:"" help:"Channel to make."`
	Users       []string `arg:"" optional:"" help:"Users to be members besides you."`
	MembersOnly bool     `help:"Only members may use it, for good."`
}

// channelJSON is a channel for programs.
type channelJSON struct {
	ChannelID   string `json:"channel_id"`
	MembersOnly bool   `json:"members_only"`
	CreatedBy   string `json:"created_by"`
	CreateTime  string `json:"create_time"`
	HeadSeq     int64  `json:"head_seq"`
	Count       int64  `json:"count"`
}

func channelToJSON(ch *parley.Channel) channelJSON {
	return channelJSON{
		ChannelID: ch.GetChannelId(), MembersOnly: ch.GetMembersOnly(), CreatedBy: ch.GetCreatedBy(),
		CreateTime: ch.GetCreateTime().AsTime().Format(timeFormat), HeadSeq: ch.GetHeadSeq(), Count: ch.GetCount(),
	}
}

// Run makes a channel.
func (c *createCommand) Run(s *session) error {
	opts := []parley.ChannelOption{parley.WithMembers(c.Users...)}
	kind := "open"
	if c.MembersOnly {
		opts, kind = append(opts, parley.MembersOnly()), "members only"
	}
	return c.with(s, func(ctx context.Context, client *parley.Client) error {
		ch, err := client.CreateChannel(ctx, c.Channel, opts...)
		if err != nil {
			return explain("create", err)
		}
		return s.printer().print(channelToJSON(ch), fmt.Sprintf("%s is made (%s)", ch.GetChannelId(), kind))
	})
}

// membersChange are the arguments of what changes members.
type membersChange struct {
	patience
	Channel string   `arg:"" help:"The channel."`
	Users   []string `arg:"" help:"The users."`
}

// membersJSON is a change of members for programs.
type membersJSON struct {
	Event     string   `json:"event"`
	ChannelID string   `json:"channel_id"`
	UserIDs   []string `json:"user_ids"`
}

func (c *membersChange) done(s *session, event string) error {
	users := fmt.Sprintf("%d users", len(c.Users))
	if len(c.Users) == 1 {
		users = oneLine(c.Users[0])
	}
	return s.printer().print(membersJSON{Event: event, ChannelID: c.Channel, UserIDs: c.Users},
		fmt.Sprintf("%s: %s %s", c.Channel, event, users))
}

type addMembersCommand struct{ membersChange }

// Run adds members.
func (c *addMembersCommand) Run(s *session) error {
	return c.with(s, func(ctx context.Context, client *parley.Client) error {
		if err := client.AddMembers(ctx, c.Channel, c.Users...); err != nil {
			return explain("add members", err)
		}
		return c.done(s, "added")
	})
}

type removeMembersCommand struct{ membersChange }

// Run removes members.
func (c *removeMembersCommand) Run(s *session) error {
	return c.with(s, func(ctx context.Context, client *parley.Client) error {
		if err := client.RemoveMembers(ctx, c.Channel, c.Users...); err != nil {
			return explain("remove members", err)
		}
		return c.done(s, "removed")
	})
}

type membersCommand struct {
	patience
	Channel string `arg:"" help:"The channel."`
}

// memberJSON is a member for programs.
type memberJSON struct {
	ChannelID string `json:"channel_id"`
	UserID    string `json:"user_id"`
	JoinTime  string `json:"join_time"`
	ReadSeq   int64  `json:"read_seq"`
}

// Run lists a channel's members.
func (c *membersCommand) Run(s *session) error {
	members := func(ctx context.Context, client *parley.Client) iter.Seq2[*parley.Member, error] {
		return client.Members(ctx, c.Channel)
	}
	return list(s, c.Timeout, "members", members, func(p printer, m *parley.Member) error {
		joined := m.GetJoinTime().AsTime()
		return p.print(memberJSON{
			ChannelID: c.Channel, UserID: m.GetUserId(), JoinTime: joined.Format(timeFormat), ReadSeq: m.GetReadSeq(),
		}, fmt.Sprintf("%s  since %s, read up to %d", oneLine(m.GetUserId()), joined.Local().Format(time.DateTime), m.GetReadSeq()))
	})
}

type myChannelsCommand struct{ patience }

// myChannelJSON is one's own channel for programs.
type myChannelJSON struct {
	channelJSON

	ReadSeq     int64        `json:"read_seq"`
	Unread      int64        `json:"unread"`
	LastMessage *messageJSON `json:"last_message,omitempty"`
}

// Run lists the user's own channels.
func (c *myChannelsCommand) Run(s *session) error {
	mine := func(ctx context.Context, client *parley.Client) iter.Seq2[*parley.MyChannel, error] {
		return client.Channels(ctx)
	}
	return list(s, c.Timeout, "list", mine, func(p printer, m *parley.MyChannel) error {
		value := myChannelJSON{channelJSON: channelToJSON(m.GetChannel()), ReadSeq: m.GetReadSeq(), Unread: m.GetUnread()}
		text := fmt.Sprintf("%s  %d unread, head %d", m.GetChannel().GetChannelId(), m.GetUnread(), m.GetChannel().GetHeadSeq())
		if last := m.GetLastMessage(); last != nil {
			value.LastMessage = new(toJSON(last))
			text += ", last " + said(last)
		}
		return p.print(value, text)
	})
}

// list writes what an iterator gives.
func list[T any](
	s *session, limit time.Duration, what string,
	items func(ctx context.Context, client *parley.Client) iter.Seq2[T, error], write func(p printer, item T) error,
) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	// The time that a command keeps trying counts anew with each item, so that a long list is no failure.
	ctx, progress, cancel := withIdleTimeout(s.ctx, limit)
	defer cancel()
	out := bufio.NewWriter(s.stdout)
	defer func() { _ = out.Flush() }()
	p := printer{w: out, side: s.stderr, json: s.flags.JSON}
	for item, err := range items(ctx, client) {
		if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return fmt.Errorf("%s: gave up after %s: %w", what, limit, err)
		}
		if err != nil {
			return explain(what, err)
		}
		progress()
		if err := write(p, item); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
