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
	// name is the user that the bot is: what that one says is never answered.
	name    string
	channel string
	state   string
}

// run answers until ctx ends. The place is noted after the answer: a bot that dies between the two answers that question
// again, under the same client_msg_id, and the server stores the answer once.
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
			b.log.Warn("some of the log is gone; what was asked there stays unanswered", "reason", event.Gap.GetReason())
		case parley.EventLost:
			return fmt.Errorf("%s is no member of %s any more", b.name, b.channel)
		default: // The rest asks nothing.
		}
		if p, ok := sub.Position(b.channel); ok && event.Kind != parley.EventTyping {
			if err := b.note(p); err != nil {
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
		return nil // Answered before, when it was another time.
	}
	return err
}

// reply gives the answer to what was said, or nothing where that was no command.
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

// start gives where the bot was, or now where it never was.
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
		return parley.Start{}, fmt.Errorf("%s is about the channel %s, not %s", b.state, p.ChannelID, b.channel)
	}
	return parley.After(p), nil
}

// note keeps the place: the file is the old one or the new one, whole, whenever the bot or the machine dies.
func (b *bot) note(p parley.Position) error {
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

// subject gives the user that a token is of. Whether the token holds is for the server to say.
func subject(token string) (string, error) {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return claims.Subject, nil
}
