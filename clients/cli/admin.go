package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/admin"
)

type adminCommand struct {
	Erase    eraseCommand       `cmd:"" help:"Erase a user's messages and memberships. Revoke the user's tokens first."`
	Erasure  erasureCommand     `cmd:"" help:"Show how far an erasure has come."`
	Revoke   revokeCommand      `cmd:"" help:"Revoke the tokens of an ssid or of a user: every node refuses them, and ends their streams."`
	Revoked  revocationsCommand `cmd:"" help:"List the revocations that are kept."`
	Kick     kickCommand        `cmd:"" help:"End the live streams of a user. To keep the user out, revoke the tokens first."`
	Erasures erasuresCommand    `cmd:"" help:"List all erasures. Keep the list with your backups: after a restore, the erasures must be repeated."`
}

type eraseCommand struct {
	User      string `arg:"" help:"The user."`
	RequestID string `help:"The id of the job; a repeat with the same id starts no second one. Default: a random one." placeholder:"ID"`
	Wait      bool   `help:"Wait until nothing of the user is left in the store and the caches. That takes more than a minute."`
}

// eraseWait is the time between two calls that ask for the state of an erasure.
const eraseWait = time.Second

// Run starts an erasure.
func (c *eraseCommand) Run(s *session) error {
	id := c.RequestID
	if id == "" {
		id = rand.Text()
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		a := admin.New(client)
		e, err := a.EraseUser(ctx, c.User, id)
		for err == nil && c.Wait && e.GetState() == admin.Running {
			select {
			case <-time.After(eraseWait):
				e, err = a.Erasure(ctx, id)
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		if err != nil {
			return explain("erase", err)
		}
		return printErasure(s, e)
	})
}

type erasureCommand struct {
	RequestID string `arg:"" name:"id" help:"The id of the job."`
}

// Run shows an erasure.
func (c *erasureCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		e, err := admin.New(client).Erasure(ctx, c.RequestID)
		if err != nil {
			return explain("erasure", err)
		}
		return printErasure(s, e)
	})
}

type erasuresCommand struct{}

// Run lists all erasures.
func (c *erasuresCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		for e, err := range admin.New(client).Erasures(ctx) {
			if err != nil {
				return explain("erasures", err)
			}
			if err := printErasure(s, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// erasureJSON is the JSON form of an erasure.
type erasureJSON struct {
	RequestID   string `json:"request_id"`
	UserID      string `json:"user_id"`
	State       string `json:"state"`
	CreateTime  string `json:"create_time"`
	EraseTime   string `json:"erase_time,omitempty"`
	FinishTime  string `json:"finish_time,omitempty"`
	Messages    int64  `json:"message_count"`
	Changes     int64  `json:"change_count"`
	Memberships int64  `json:"membership_count"`
}

func printErasure(s *session, e *admin.Erasure) error {
	out := erasureJSON{
		RequestID: e.GetRequestId(), UserID: e.GetUserId(), State: lowerName(e.GetState().String(), "ERASURE_STATE_"),
		CreateTime: e.GetCreateTime().AsTime().Format(time.RFC3339Nano), Messages: e.GetMessageCount(),
		Changes: e.GetChangeCount(), Memberships: e.GetMembershipCount(),
	}
	if at := e.GetEraseTime(); at != nil {
		out.EraseTime = at.AsTime().Format(time.RFC3339Nano)
	}
	if at := e.GetFinishTime(); at != nil {
		out.FinishTime = at.AsTime().Format(time.RFC3339Nano)
	}
	return s.printer().print(out, fmt.Sprintf("%s: erasure of %s: %s  %d messages, %d other entries, %d memberships",
		out.RequestID, out.UserID, out.State, out.Messages, out.Changes, out.Memberships))
}
