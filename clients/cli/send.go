package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	parley "github.com/parleyhq/parley/sdk/go"
)

// maxStdin is larger than the server's limit for a message, so that the server refuses a message
// that is too long.
const maxStdin = 128 << 10

type sendCommand struct {
	Channel string            `arg:"" help:"Channel to send to."`
	Text    []string          `arg:"" optional:"" help:"The message. Without it, standard input is the message."`
	Lines   bool              `help:"Send each line of standard input as a message."`
	ID      string            `name:"id" help:"The message's client_msg_id. The message is stored once, however often it is sent with this id."`
	Type    string            `help:"The message's type. Default: text."`
	From    string            `help:"Send as a user other than the token's subject. Requires the action send_as."`
	Meta    map[string]string `help:"Metadata, as key=value." mapsep:"none"`
}

// receiptJSON is the JSON form of a receipt.
type receiptJSON struct {
	ChannelID   string `json:"channel_id"`
	MsgID       string `json:"msg_id"`
	Seq         int64  `json:"seq"`
	Count       int64  `json:"count"`
	MsgTime     string `json:"msg_time"`
	ClientMsgID string `json:"client_msg_id"`
	Epoch       string `json:"epoch"`
	Duplicate   bool   `json:"duplicate"`
}

// Run sends one message: the arguments or, without arguments, all of standard input. With --lines
// it sends each line of standard input that is not blank as a message.
func (c *sendCommand) Run(s *session) error {
	switch {
	case c.Lines && len(c.Text) > 0:
		return usagef("--lines reads standard input and accepts no text")
	case c.Lines && c.ID != "":
		return usagef("--id and --lines exclude each other: --id applies to a single message")
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Lines {
		return c.sendLines(s, client)
	}
	content := strings.Join(c.Text, " ")
	if len(c.Text) == 0 {
		data, err := io.ReadAll(io.LimitReader(s.stdin, maxStdin))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		content = strings.TrimSuffix(string(data), "\n")
	}
	return c.send(s, client, content)
}

func (c *sendCommand) sendLines(s *session, client *parley.Client) error {
	lines := bufio.NewScanner(s.stdin)
	lines.Buffer(nil, maxStdin)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := c.send(s, client, lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

func (c *sendCommand) send(s *session, client *parley.Client, content string) error {
	opts := []parley.SendOption{parley.WithClientMsgID(c.ID), parley.WithType(c.Type), parley.WithSender(c.From)}
	if len(c.Meta) > 0 {
		opts = append(opts, parley.WithMetadata(c.Meta))
	}
	r, err := client.Send(s.ctx, c.Channel, content, opts...)
	if err != nil {
		return explain("send", err)
	}
	return s.printer().receipt(r, "sent to "+r.ChannelID)
}

// receipt writes the receipt of a message. done says what was done.
func (p printer) receipt(r *parley.Receipt, done string) error {
	text := fmt.Sprintf("%s: seq %d, id %s", done, r.Seq, r.MsgID)
	if r.Duplicate {
		text += " (duplicate)"
	}
	return p.print(receiptJSON{
		ChannelID: r.ChannelID, MsgID: r.MsgID, Seq: r.Seq, Count: r.Count, MsgTime: r.Time.Format(timeFormat),
		ClientMsgID: r.ClientMsgID, Epoch: r.Epoch, Duplicate: r.Duplicate,
	}, text)
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// refusedChannels returns the channels that an error refuses, as ` (a, b)`. It returns an empty
// string if there are none.
func refusedChannels(err error) string {
	e, ok := errors.AsType[*parley.Error](err)
	if !ok || len(e.Positions) == 0 {
		return ""
	}
	ids := make([]string, len(e.Positions))
	for i, p := range e.Positions {
		ids[i] = p.ChannelID
	}
	return " (" + strings.Join(ids, ", ") + ")"
}

// explain adds the name of the call to an error, and a hint for the common failures.
func explain(what string, err error) error {
	switch {
	case errors.Is(err, parley.ErrTokenInvalid), errors.Is(err, parley.ErrTokenExpired):
		return fmt.Errorf("%s: %w (check that the token is for this server and has not expired)", what, err)
	case errors.Is(err, parley.ErrNotMember):
		return fmt.Errorf("%s: %w%s", what, err, refusedChannels(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: gave up: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
