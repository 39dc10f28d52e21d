package admin

import (
	"context"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// Kick says which streams of a user KickUser ends. If DeviceID, Platform or ConnectionID is set,
// only streams with presence end that match all that are set; else all streams.
type Kick struct {
	DeviceID     string
	Platform     parley.Platform
	ConnectionID string
	// Reason is what the clients get as the Kick's Reason, in at most 256 bytes.
	Reason string
}

// Kicked is what KickUser did. The proto files describe the fields.
type Kicked = parleyv1.KickUserResponse

// KickUser ends live streams of a user on all nodes, with parley.ErrKicked. It does not keep the
// user out; for that, call RevokeUser first.
//
// Nodes that did not answer within a second are in the result: repeat the call, which ends what is
// left.
func (a *Admin) KickUser(ctx context.Context, userID string, k Kick) (kicked *Kicked, err error) {
	err = a.link.Call(ctx, "KickUser", func(ctx context.Context, s *link.Services) error {
		kicked, err = s.Admin.KickUser(ctx, &parleyv1.KickUserRequest{
			UserId: userID, DeviceId: k.DeviceID, Platform: k.Platform, ConnectionId: k.ConnectionID, Reason: k.Reason,
		})
		return err
	})
	return kicked, err
}
