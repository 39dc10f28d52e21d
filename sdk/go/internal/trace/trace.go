// Package trace carries the trace of a context in the headers of queue messages. Programs do not
// use it.
package trace

import (
	"context"
	"maps"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// The server's limits for headers.
const (
	maxHeaders     = 32
	maxHeaderValue = 1024
)

var headerName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Inject returns the headers with the headers of the context's trace added, as far as the server's
// limits allow. It does not change the given map.
func Inject(ctx context.Context, headers map[string]string) map[string]string {
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	all := headers
	for name, value := range carrier {
		_, has := headers[name]
		if has || len(all) >= maxHeaders || len(value) > maxHeaderValue || strings.ContainsAny(value, "\r\n\x00") ||
			!headerName.MatchString(name) {
			continue
		}
		if len(all) == len(headers) {
			all = maps.Clone(headers)
			if all == nil {
				all = make(map[string]string)
			}
		}
		all[name] = value
	}
	return all
}

// Extract returns a context with the trace of a message's headers.
func Extract(ctx context.Context, headers map[string]string) context.Context {
	return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(headers))
}
