package parleytest

import (
	"context"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// SignOut implements the service. It revokes the token of the call alone: tokens have no ssid here.
func (h presenceHandler) SignOut(ctx context.Context, req *parleyv1.SignOutRequest) (*parleyv1.SignOutResponse, error) {
	return do(ctx, h.s, "SignOut", req, func() (*parleyv1.SignOutResponse, error) {
		h.s.revokeLocked(tokenOf(ctx))
		return &parleyv1.SignOutResponse{}, nil
	})
}

// revokeLocked revokes a token: calls with it fail with TOKEN_REVOKED, and so do its live streams.
func (s *Server) revokeLocked(token string) {
	if s.revoked == nil {
		s.revoked = make(map[string]bool)
	}
	s.revoked[token] = true
	for _, one := range s.streams {
		if one.token == token {
			one.end = &end{err: errRevoked()}
		}
	}
	for _, one := range s.sessions {
		if one.stream != nil && one.stream.token == token {
			one.stream.end = &end{err: errRevoked()}
		}
	}
	s.wakeLocked()
}

func errRevoked() error {
	return Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED)
}
