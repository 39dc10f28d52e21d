package redispresence

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

// reply reads the elements of a script's reply in order. After an element of another type, or the
// end, everything reads as the zero value and err is set.
type reply struct {
	place string
	rest  []any
	err   error
}

// read returns the reply of a call to a place (see failed).
func read(place string, cmd *redis.Cmd) *reply {
	r := &reply{place: place}
	value, err := cmd.Result()
	if err != nil {
		r.err = failed(place, err)
		return r
	}
	rest, ok := value.([]any)
	if !ok {
		r.err = unreadable(place, "reply", value)
	}
	r.rest = rest
	return r
}

// next returns the next element, which must be a T.
func next[T any](r *reply) (value T) {
	if r.err != nil {
		return value
	}
	if len(r.rest) == 0 {
		r.err = unreadable(r.place, "reply", "that is too short")
		return value
	}
	value, ok := r.rest[0].(T)
	if !ok {
		r.err = unreadable(r.place, "reply element", r.rest[0])
	}
	r.rest = r.rest[1:]
	return value
}

func (r *reply) text() string { return next[string](r) }
func (r *reply) int() int64   { return next[int64](r) }

// time returns the next element, in ms since 1970. 0 is the zero Time.
func (r *reply) time() time.Time {
	ms := r.int()
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// texts returns the next element, a list of texts.
func (r *reply) texts() []string {
	inner := &reply{place: r.place, rest: next[[]any](r), err: r.err}
	texts := make([]string, 0, len(inner.rest))
	for len(inner.rest) > 0 && inner.err == nil {
		texts = append(texts, inner.text())
	}
	r.err = inner.err
	return texts
}

// state returns the next element, a state.
func (r *reply) state() presence.State {
	text := r.text()
	state, ok := parseState(text)
	if r.err == nil && !ok {
		r.err = unreadable(r.place, "state", text)
	}
	return state
}

// outcome returns the outcome that the next element names, and the time after it.
func (r *reply) outcome() (presence.Outcome, time.Time) {
	text := r.text()
	now := r.time()
	if r.err != nil {
		return presence.Unknown, time.Time{}
	}
	switch text {
	case "OK":
		return presence.Done, now
	case "LATE":
		return presence.Late, now
	case "FENCED":
		return presence.Fenced, now
	case "EPOCH":
		return presence.OtherEpoch, now
	}
	r.err = unreadable(r.place, "outcome", text)
	return presence.Unknown, time.Time{}
}

// head returns what the function head in lib_presence.lua returns.
func (r *reply) head() (now time.Time, head presence.Head) {
	now = r.time()
	head = presence.Head{Epoch: r.text(), Seq: r.int(), LastAt: r.time(), Opened: r.time(), SettledAt: r.time()}
	return now, head
}
