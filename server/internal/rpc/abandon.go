package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/time/rate"
)

// abandonPerSecond and abandonBurst bound the calls of one HTTP/2 connection that its client resets
// before they are answered. Beyond them the connection is closed. A client that resets more makes
// the server work for nothing, as in CVE-2023-44487. net/http itself bounds only the calls that
// wait to begin, and calls that are reset as soon as they begin do not wait. The burst is twice the
// default limit on concurrent calls of a connection: a client that ends may reset all of them.
const (
	abandonPerSecond = 100
	abandonBurst     = 500
)

type connectionKey struct{}

// connection is the network connection of a call, with its limits on abandoned calls and on waste.
// waste is nil if the connection has no such limit.
type connection struct {
	net.Conn

	abandoned *rate.Limiter
	waste     *waste
}

// withConnection implements http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{c, rate.NewLimiter(abandonPerSecond, abandonBurst), wasteOf(c)})
}

// limitConnections returns next with a check after each call, which closes the connection if its
// client has abandoned too many calls: see abandonPerSecond. Before the call it counts what the
// client has sent as used: see wasteBytes.
func limitConnections(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.waste.countUsed(r)
		}
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
		log.InfoContext(r.Context(), "connection closed: too many abandoned calls",
			slog.String("peer", c.RemoteAddr().String()))
	}
}
