package redisqueue

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// refusals are the errors that scripts and Redis answer, by the first word. A script that answers one of them has changed
// nothing, unless its header says otherwise.
var refusals = map[string]error{
	"NOTOPIC":     queue.ErrNoTopic,
	"TOPICEXISTS": queue.ErrTopicExists,
	"CONFLICT":    queue.ErrConflict,
	"NOGROUP":     queue.ErrNoGroup,
	"GROUPEXISTS": queue.ErrGroupExists,
	"FENCED":      queue.ErrFenced,
	"BEHIND":      queue.ErrBehind,
	"HELD":        queue.ErrHeld,
	"INUSE":       queue.ErrInUse,
	"PAUSED":      queue.ErrPaused,
	"FULL":        queue.ErrFull,
	"NOSCHEDULED": queue.ErrNoScheduled,
}

// away are the first words of what a Redis answers that can't serve for now. It has done nothing then.
var away = []string{
	"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "OOM", "TRYAGAIN", "NOREPLICAS", "MISCONF", "MOVED", "ASK", "NOSCRIPT",
	"NOAUTH", "WRONGPASS", "NOPERM",
}

// writeError makes a driver's error one of queue.Store's: of a call that may have changed something.
func writeError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return fault.Wrap(fmt.Errorf("%w: %w", queue.ErrUnknownOutcome, err), fault.Unavailable, fault.OutcomeUnknown,
		"the store did not answer; it is not known whether the call was done")
}

// readError is writeError of a call that changes nothing: it has done nothing for certain.
func readError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return unavailable(err)
}

func unavailable(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is not available")
}

// answered gives the error of a call of which it is known that it was not sent, or was refused.
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
