package cli

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

type channelCommand struct {
	Create  createCommand        `cmd:"" help:"Create a channel. You become its owner. Requires the action create."`
	Add     addMembersCommand    `cmd:"" help:"Add members to a channel."`
	Role    roleCommand          `cmd:"" help:"Set the role of a member."`
	Remove  removeMembersCommand `cmd:"" help:"Remove members from a channel."`
	Members membersCommand       `cmd:"" help:"List a channel's members."`
	List    userChannelsCommand  `cmd:"" help:"List your channels, with your unread counts."`
	Get     getChannelCommand    `cmd:"" help:"Show a channel and its settings."`
	Retain  retainCommand        `cmd:"" help:"Set how long a channel's messages are kept. Requires the action manage."`
	Close   closeCommand         `cmd:"" help:"Let only its members use a channel. Requires the action manage."`
	Open    openCommand          `cmd:"" help:"Let everyone use a channel, and read its history. Requires the action manage."`
	Delete  deleteChannelCommand `cmd:"" help:"Delete a channel with its messages and members. Requires the action manage."`
}

type createCommand struct {
	Channel        string   `arg:"" help:"Channel to create: 1 to 128 of A-Z a-z 0-9 _ -"`
	Member         []string `help:"A member besides you; may be repeated, up to 500." sep:"none" placeholder:"USER"`
	MembersOnly    bool     `help:"Only members can use the channel."`
	IdempotencyKey string   `help:"Makes the command idempotent: a repeat with the same key and settings succeeds." placeholder:"KEY"`

	retentionFlags
}

// channelJSON is the JSON form of a channel.
type channelJSON struct {
	ChannelID    string `json:"channel_id"`
	MembersOnly  bool   `json:"members_only"`
	CreatedBy    string `json:"created_by"`
	CreateTime   string `json:"create_time"`
	HeadSeq      int64  `json:"head_seq"`
	Count        int64  `json:"count"`
	OldestSeq    int64  `json:"oldest_seq"`
	ExpiredCount int64  `json:"expired_count"`
	Epoch        string `json:"epoch"`
	Etag         string `json:"etag"`
	// Retention is there only if the channel has a policy of its own.
	Retention *retentionJSON `json:"retention,omitempty"`
}

func channelToJSON(ch *parley.Channel) channelJSON {
	return channelJSON{
		ChannelID: ch.GetChannelId(), MembersOnly: ch.GetMembersOnly(), CreatedBy: ch.GetCreatedBy(),
		CreateTime: ch.GetCreateTime().AsTime().Format(timeFormat), HeadSeq: ch.GetHeadSeq(), Count: ch.GetCount(),
		OldestSeq: ch.GetOldestSeq(), ExpiredCount: ch.GetExpiredCount(), Epoch: ch.GetEpoch(), Etag: ch.GetEtag(),
		Retention: retentionToJSON(ch.GetRetention()),
	}
}

// Run creates a channel.
func (c *createCommand) Run(s *session) error {
	opts := []parley.ChannelOption{parley.WithMembers(c.Member...)}
	kind := "open"
	if c.MembersOnly {
		opts, kind = append(opts, parley.MembersOnly()), "members only"
	}
	if c.IdempotencyKey != "" {
		opts = append(opts, parley.WithIdempotencyKey(c.IdempotencyKey))
	}
	if r := c.retention(); r != nil {
		opts = append(opts, parley.WithRetention(r))
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		ch, err := client.CreateChannel(ctx, c.Channel, opts...)
		if err != nil {
			return explain("create", err)
		}
		return s.printer().print(channelToJSON(ch), fmt.Sprintf("%s is created (%s)", ch.GetChannelId(), kind))
	})
}

// membersChange holds the arguments of the commands that change members.
type membersChange struct {
	Channel string   `arg:"" help:"The channel."`
	Users   []string `arg:"" help:"The users."`
}

// membersJSON is the JSON form of a change of members.
type membersJSON struct {
	Event     string   `json:"event"`
	ChannelID string   `json:"channel_id"`
	UserIDs   []string `json:"user_ids"`
}

func (c *membersChange) printResult(s *session, event string) error {
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
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.AddMembers(ctx, c.Channel, c.Users...); err != nil {
			return explain("add members", err)
		}
		return c.printResult(s, "added")
	})
}

type roleCommand struct {
	Channel string `arg:"" help:"The channel."`
	User    string `arg:"" help:"The user. A user who is not a member becomes one."`
	Role    string `arg:"" enum:"member,moderator,owner" help:"The new role: member, moderator or owner."`
}

// Run sets the role of a member.
func (c *roleCommand) Run(s *session) error {
	role := map[string]parley.Role{"member": parley.RoleMember, "moderator": parley.RoleModerator, "owner": parley.RoleOwner}[c.Role]
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.UpdateMember(ctx, c.Channel, c.User, role); err != nil {
			return explain("role", err)
		}
		return s.printer().print(roleJSON{ChannelID: c.Channel, UserID: c.User, Role: c.Role},
			fmt.Sprintf("%s: %s is %s", c.Channel, oneLine(c.User), c.Role))
	})
}

// roleJSON is the JSON form of a role that was set.
type roleJSON struct {
	ChannelID string `json:"channel_id"`
	UserID    string `json:"user_id"`
	Role      string `json:"role"`
}

type removeMembersCommand struct{ membersChange }

// Run removes members.
func (c *removeMembersCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.RemoveMembers(ctx, c.Channel, c.Users...); err != nil {
			return explain("remove members", err)
		}
		return c.printResult(s, "removed")
	})
}

type membersCommand struct {
	Channel string `arg:"" help:"The channel."`
}

// memberJSON is the JSON form of a member.
type memberJSON struct {
	ChannelID string `json:"channel_id"`
	UserID    string `json:"user_id"`
	Role      string `json:"role"`
	JoinTime  string `json:"join_time"`
	ReadSeq   int64  `json:"read_seq"`
}

// Run lists a channel's members.
func (c *membersCommand) Run(s *session) error {
	members := func(ctx context.Context, client *parley.Client) iter.Seq2[*parley.Member, error] {
		return client.Members(ctx, c.Channel)
	}
	return list(s, "members", members, func(p printer, m *parley.Member) error {
		joined, role := m.GetJoinTime().AsTime(), lowerName(m.GetRole().String(), "MEMBER_ROLE_")
		return p.print(memberJSON{
			ChannelID: c.Channel, UserID: m.GetUserId(), Role: role,
			JoinTime: joined.Format(timeFormat), ReadSeq: m.GetReadSeq(),
		}, fmt.Sprintf("%s  %s since %s, read up to %d", oneLine(m.GetUserId()), role, joined.Local().Format(time.DateTime), m.GetReadSeq()))
	})
}

type userChannelsCommand struct{}

// userChannelJSON is the JSON form of a channel with the user's own state in it.
type userChannelJSON struct {
	channelJSON

	ReadSeq     int64        `json:"read_seq"`
	Unread      int64        `json:"unread"`
	LastMessage *messageJSON `json:"last_message,omitempty"`
}

// Run lists the user's own channels.
func (*userChannelsCommand) Run(s *session) error {
	userChannels := func(ctx context.Context, client *parley.Client) iter.Seq2[*parley.UserChannel, error] {
		return client.Channels(ctx)
	}
	return list(s, "list", userChannels, func(p printer, m *parley.UserChannel) error {
		value := userChannelJSON{channelJSON: channelToJSON(m.GetChannel()), ReadSeq: m.GetReadSeq(), Unread: m.GetUnread()}
		text := fmt.Sprintf("%s  %d unread, head %d", m.GetChannel().GetChannelId(), m.GetUnread(), m.GetChannel().GetHeadSeq())
		if last := m.GetLastMessage(); last != nil {
			value.LastMessage = new(toJSON(last))
			text += ", last " + messageText(last)
		}
		return p.print(value, text)
	})
}

// list calls write for each item of an iterator, in order, with a printer for standard output. what
// names the command in errors.
func list[T any](
	s *session, what string,
	items func(ctx context.Context, client *parley.Client) iter.Seq2[T, error], write func(p printer, item T) error,
) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(s.stdout)
	defer func() { _ = out.Flush() }()
	p := printer{w: out, stderr: s.stderr, json: s.flags.JSON}
	for item, err := range items(s.ctx, client) {
		if err != nil {
			return explain(what, err)
		}
		if err := write(p, item); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
