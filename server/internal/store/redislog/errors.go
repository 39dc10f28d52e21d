package redislog

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// refusals are the errors that scripts and Redis return, by their first word. A script that returns
// one of them has changed nothing.
var refusals = map[string]error{
	"NOTOPIC":    qlog.ErrNoTopic,
	"CONFLICT":   qlog.ErrConflict,
	"EXISTS":     qlog.ErrTopicExists,
	"NOGROUP":    qlog.ErrNoGroup,
	"FENCED":     qlog.ErrFenced,
	"ROLLEDBACK": qlog.ErrRolledBack,
	"HELD":       qlog.ErrHeld,
	"PAUSED":     qlog.ErrPaused,
	"STALE":      qlog.ErrStale,
	"TOOLARGE":   qlog.ErrTooLarge,
	"OOM":        qlog.ErrNoMemory,
}

// away are the first words of the errors of a Redis that is not able to serve at present. It has
// changed nothing then.
var away = []string{
	"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "TRYAGAIN", "NOREPLICAS", "MISCONF", "MOVED", "ASK", "NOSCRIPT",
	"NOAUTH", "WRONGPASS", "NOPERM",
}

// writeError converts a driver's error, of a call that may have changed something, to one of
// qlog.Store.
func writeError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return fault.Wrap(fmt.Errorf("%w: %w", qlog.ErrUnknownOutcome, err), fault.Unavailable, fault.OutcomeUnknown,
		"the store did not answer; it is not known whether the call was done")
}

// readError is writeError for a call that changes nothing.
func readError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return unavailable(err)
}

func unavailable(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is not available")
}

// answered returns the error of a call that certainly was not sent, or was refused.
func answered(err error) (sure bool, known error) {
	var dial *net.OpError
	var reply redis.Error
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &dial) && dial.Op == "dial":
		return true, unavailable(err)
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "ERR "), " ")
		if known, ok := refusals[word]; ok {
			return true, known
		}
		if slices.Contains(away, word) {
			return true, unavailable(err)
		}
		return true, err
	default:
		return false, nil
	}
}
