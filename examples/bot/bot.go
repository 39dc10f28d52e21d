package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

const help = "I know !time, !echo <text> and !help."

type bot struct {
	client *parley.Client
	log    *slog.Logger
	// name is the user id of the bot. The bot never answers its own messages.
	name    string
	channel string
	state   string
}

// run answers questions until ctx ends. It stores its position after each answer. A bot that dies
// between the two answers the question again with the same client_msg_id, and the server stores the
// answer once.
func (b *bot) run(ctx context.Context) error {
	start, err := b.start()
	if err != nil {
		return err
	}
	sub := b.client.Subscribe(ctx, start)
	defer sub.Close()
	for event, err := range sub.Events() {
		if err != nil {
			return err
		}
		switch event.Kind {
		case parley.EventSent:
			if err := b.answer(ctx, event.Message); err != nil {
				return err
			}
		case parley.EventGap:
			b.log.Warn("log entries are missing; questions in them stay unanswered", "reason", event.Gap.GetReason())
		case parley.EventLost:
			return fmt.Errorf("%s lost %s: %s", b.name, b.channel, event.Lost.GetReason())
		default: // The other events contain no question.
		}
		if p, ok := sub.Position(b.channel); ok && event.Kind != parley.EventTyping {
			if err := b.savePosition(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bot) answer(ctx context.Context, question *parley.Message) error {
	text := reply(question.GetContent(), time.Now())
	if text == "" || question.GetFromId() == b.name || question.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
		return nil
	}
	_, err := b.client.Send(ctx, b.channel, text, parley.WithClientMsgID("answer-"+question.GetMsgId()),
		parley.WithMetadata(map[string]string{"reply_to": question.GetMsgId()}))
	if errors.Is(err, parley.ErrClientMsgIDReused) {
		return nil // The question was answered before, with another text, such as an earlier time.
	}
	return err
}

// reply returns the answer to a message, or an empty string if the message is not a command.
func reply(said string, now time.Time) string {
	command, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
	switch {
	case command == "!time":
		return "It is " + now.UTC().Format("2006-01-02 15:04:05.000 UTC") + "."
	case command == "!echo" && rest != "":
		return rest
	case command == "!help" || command == "!echo":
		return help
	default:
		return ""
	}
}

// start returns the Start after the stored position or, if none is stored, at the end of the
// channel's log.
func (b *bot) start() (parley.Start, error) {
	data, err := os.ReadFile(b.state)
	if errors.Is(err, fs.ErrNotExist) {
		return parley.Live(b.channel), nil
	}
	if err != nil {
		return parley.Start{}, err
	}
	var p parley.Position
	if err := json.Unmarshal(data, &p); err != nil {
		return parley.Start{}, fmt.Errorf("read %s: %w", b.state, err)
	}
	if p.ChannelID != b.channel {
		return parley.Start{}, fmt.Errorf("%s holds a position of the channel %s, not %s", b.state, p.ChannelID, b.channel)
	}
	return parley.After(p), nil
}

// savePosition stores the position. The file is replaced as a whole: if the bot or the machine
// dies, it contains either the old or the new position.
func (b *bot) savePosition(p parley.Position) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	next := b.state + ".new"
	file, err := os.Create(next)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(next, b.state)
}

// subject returns the user id of a token. It does not verify the token; the server does.
func subject(token string) (string, error) {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return claims.Subject, nil
}
