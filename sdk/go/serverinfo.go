package parley

import (
	"context"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// ServerInfo contains the version, the limits and the features of a server. The proto file
// describes the fields.
type ServerInfo = parleyv1.GetServerInfoResponse

// ServerInfo returns the version, the limits and the features of the server. For a fleet they are
// those of one node. It requires a valid token but no capability. It is retried until ctx or the
// call's deadline ends.
func (c *Client) ServerInfo(ctx context.Context) (*ServerInfo, error) {
	var res *ServerInfo
	err := c.do(ctx, "GetServerInfo", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Server.GetServerInfo(ctx, &parleyv1.GetServerInfoRequest{})
		return err
	})
	return res, err
}
