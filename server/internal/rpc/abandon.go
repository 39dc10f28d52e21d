package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/time/rate"
)

// abandonPerSecond and abandonBurst bound the calls of one HTTP/2 connection that its client resets before they are
// answered. Who resets more wants the server to work for nothing, as in CVE-2023-44487. net/http itself bounds only how
// many calls wait to be begun, which those do not who are given up as fast as they are begun. The burst is twice what one
// connection may have under way at once by default: a client that ends may reset all of it.
const (
	abandonPerSecond = 100
	abandonBurst     = 500
)

type connectionKey struct{}

// connection is what is known of the connection that a call came on.
type connection struct {
	net.Conn

	abandoned *rate.Limiter
}

// withConnection is http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{c, rate.NewLimiter(abandonPerSecond, abandonBurst)})
}

// limitAbandoned closes connections whose clients abandon too many calls.
func limitAbandoned(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		countAbandoned(log, r)
	})
}

func countAbandoned(log *slog.Logger, r *http.Request) {
	if r.ProtoMajor < 2 || !errors.Is(r.Context().Err(), context.Canceled) {
		return
	}
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if ok && !c.abandoned.Allow() && c.Close() == nil {
		log.InfoContext(r.Context(), "connection closed: its client abandons calls too fast",
			slog.String("peer", c.RemoteAddr().String()))
	}
}
