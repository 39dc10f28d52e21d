package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parley "github.com/parleyhq/parley/sdk/go"
)

// retentionFlags set the limits of a channel's own retention.
type retentionFlags struct {
	MaxAge      time.Duration `help:"The age at which messages expire, such as 720h; at least 1m." placeholder:"AGE"`
	MaxMessages int64         `help:"How many messages are kept." placeholder:"N"`
	MaxBytes    int64         `help:"The size of what is kept; a message counts 256 bytes besides its text." placeholder:"N"`
}

// retention returns the policy that the flags describe; nil without flags.
func (f *retentionFlags) retention() *parley.Retention {
	if *f == (retentionFlags{}) {
		return nil
	}
	r := &parley.Retention{MaxMessages: f.MaxMessages, MaxBytes: f.MaxBytes}
	if f.MaxAge != 0 {
		r.MaxAge = durationpb.New(f.MaxAge)
	}
	return r
}

// retentionJSON is the JSON form of a policy. A limit that does not apply is 0 or empty.
type retentionJSON struct {
	MaxAge      string `json:"max_age"`
	MaxMessages int64  `json:"max_messages"`
	MaxBytes    int64  `json:"max_bytes"`
}

func retentionToJSON(r *parley.Retention) *retentionJSON {
	if r == nil {
		return nil
	}
	out := &retentionJSON{MaxMessages: r.GetMaxMessages(), MaxBytes: r.GetMaxBytes()}
	if r.GetMaxAge() != nil {
		out.MaxAge = r.GetMaxAge().AsDuration().String()
	}
	return out
}

// retentionText describes a policy.
func retentionText(r *parley.Retention) string {
	if r == nil {
		return "kept by the server's default"
	}
	var limits []string
	if age := r.GetMaxAge().AsDuration(); age > 0 {
		limits = append(limits, "for "+age.String())
	}
	if n := r.GetMaxMessages(); n > 0 {
		limits = append(limits, fmt.Sprintf("up to %d messages", n))
	}
	if n := r.GetMaxBytes(); n > 0 {
		limits = append(limits, fmt.Sprintf("up to %d bytes", n))
	}
	if len(limits) == 0 {
		return "kept without a limit"
	}
	return "kept " + strings.Join(limits, ", ")
}

type getChannelCommand struct {
	Channel string `arg:"" help:"The channel."`
}

// Run shows a channel.
func (c *getChannelCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		ch, err := client.Channel(ctx, c.Channel)
		if err != nil {
			return explain("get", err)
		}
		return s.printer().print(channelToJSON(ch), fmt.Sprintf("%s (%s)  head %d, oldest %d, %d messages, %s",
			ch.GetChannelId(), modeText(ch), ch.GetHeadSeq(), ch.GetOldestSeq(), ch.GetCount()-ch.GetExpiredCount(),
			retentionText(ch.GetRetention())))
	})
}

type retainCommand struct {
	retentionFlags

	Channel string `arg:"" help:"The channel."`
	All     bool   `help:"Keep all messages."`
	Default bool   `help:"Keep messages by the server's default."`
	Etag    string `help:"Change nothing if the settings have changed since the channel had this etag." placeholder:"ETAG"`
}

// Run sets a channel's retention.
func (c *retainCommand) Run(s *session) error {
	policy := c.retention()
	if chosen := map[bool]int{true: 1}; chosen[policy != nil]+chosen[c.All]+chosen[c.Default] != 1 {
		return usageError{errors.New("give limits, --all or --default")}
	}
	if c.All {
		policy = &parley.Retention{}
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		ch, err := client.SetRetention(ctx, c.Channel, policy, parley.IfEtag(c.Etag))
		if err != nil {
			return explain("retain", err)
		}
		return s.printer().print(channelToJSON(ch), fmt.Sprintf("%s: messages are %s", ch.GetChannelId(), retentionText(ch.GetRetention())))
	})
}

// modeFlags are the arguments of the commands that close and open a channel.
type modeFlags struct {
	Channel string `arg:"" help:"The channel."`
	Etag    string `help:"Change nothing if the settings have changed since the channel had this etag." placeholder:"ETAG"`
}

func (f *modeFlags) set(s *session, call string, membersOnly bool) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		ch, err := client.SetMembersOnly(ctx, f.Channel, membersOnly, parley.IfEtag(f.Etag))
		if err != nil {
			return explain(call, err)
		}
		return s.printer().print(channelToJSON(ch), fmt.Sprintf("%s is %s", ch.GetChannelId(), modeText(ch)))
	})
}

// modeText describes who may use a channel.
func modeText(ch *parley.Channel) string {
	if ch.GetMembersOnly() {
		return "members only"
	}
	return "open"
}

type closeCommand struct{ modeFlags }

// Run closes a channel.
func (c *closeCommand) Run(s *session) error { return c.set(s, "close", true) }

type openCommand struct{ modeFlags }

// Run opens a channel.
func (c *openCommand) Run(s *session) error { return c.set(s, "open", false) }

type deleteChannelCommand struct {
	Channel string `arg:"" help:"The channel."`
	Confirm string `help:"The channel again, to confirm." placeholder:"CHANNEL"`
	Etag    string `help:"Delete it only if this is still its etag (see get --json)." placeholder:"ETAG"`
}

// Run deletes a channel.
func (c *deleteChannelCommand) Run(s *session) error {
	if err := checkConfirm(c.Confirm, c.Channel, "the channel, its messages and its members"); err != nil {
		return err
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.DeleteChannel(ctx, c.Channel, parley.IfEtag(c.Etag)); err != nil {
			return explain("delete", err)
		}
		return s.printer().print(deletedJSON{ChannelID: c.Channel}, c.Channel+" is deleted")
	})
}

// deletedJSON is the JSON form of a deletion.
type deletedJSON struct {
	ChannelID string `json:"channel_id"`
}
