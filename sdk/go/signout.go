package parley

import (
	"context"
	"errors"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// SignOut revokes the client's token, and all tokens with the same `ssid` if it has one. Within a
// second after it returns, every node refuses them: calls and streams end with ErrTokenRevoked. It
// requires no capability.
//
// It is retried until ctx or the call's deadline ends. If the token is revoked already, by an
// attempt whose answer was lost or by anybody else, it succeeds.
func (c *Client) SignOut(ctx context.Context) error {
	err := c.do(ctx, "SignOut", func(ctx context.Context, n *endpoint) error {
		_, err := n.Presence.SignOut(ctx, &parleyv1.SignOutRequest{})
		return err
	})
	if errors.Is(err, ErrTokenRevoked) {
		return nil
	}
	return err
}
