package redispresence

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
)

// failed returns the error of a call to a place, such as "shard 7". Its kind is fault.Unavailable,
// except if the server replied that the script itself failed, which a repeat would not cure.
func failed(place string, err error) error {
	err = fmt.Errorf("presence: %s: %w", place, err)
	var reply redis.Error
	if errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "ERR") || strings.HasPrefix(reply.Error(), "WRONGTYPE")) {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is not available")
}

// unreadable returns the error of stored data of another form than this package writes.
func unreadable(place, what string, data any) error {
	text := fmt.Sprint(data)
	if len(text) > maxQuoted {
		text = text[:maxQuoted]
	}
	return fmt.Errorf("presence: %s: unreadable %s %q", place, what, text)
}

// maxQuoted is the maximum length of quoted data in an error, in bytes.
const maxQuoted = 200
