package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/parleyhq/parley/server/internal/rpc"
)

// listenAPI opens the API's listener. In dev without TLS, ours reports whether this server receives
// every call to a name below localhost; otherwise it is false. Browsers try [::1] before 127.0.0.1,
// so another process that listens there would receive the calls.
func (s *Server) listenAPI(ctx context.Context) (ours bool, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return false, fmt.Errorf("listen: %w", err)
	}
	s.apiLn = rpc.LimitWaste(ln, s.log)
	s.done.Push("listener", func(context.Context) error { return ignoreClosed(s.apiLn.Close()) })
	addr, ok := s.apiLn.Addr().(*net.TCPAddr)
	if !s.dev || s.cfg.TLS.Cert != "" || !ok {
		return false, nil
	}
	if !addr.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		return addr.IP.IsUnspecified(), nil // both IPv4 and IPv6
	}
	beside, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(addr.Port)))
	if err != nil {
		// Without IPv6 no other process can listen there. Any other error may mean that one does.
		return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT), nil
	}
	s.besideLn = rpc.LimitWaste(beside, s.log)
	s.done.Push("listener on [::1]", func(context.Context) error { return ignoreClosed(beside.Close()) })
	return true, nil
}
