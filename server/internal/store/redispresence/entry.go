package redispresence

import (
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
)

// parseEntry returns an entry of a log. See the package comment for its form. It returns false for
// a line of another form.
func parseEntry(line string) (e presence.Entry, ok bool) {
	fields := strings.SplitN(line, " ", 4)
	if len(fields) != 4 {
		return presence.Entry{}, false
	}
	seq, seqErr := strconv.ParseInt(fields[0], 10, 64)
	ms, msErr := strconv.ParseInt(fields[1], 10, 64)
	if seqErr != nil || msErr != nil {
		return presence.Entry{}, false
	}
	e = presence.Entry{Seq: seq, At: time.UnixMilli(ms)}
	if fields[2] == "L" {
		return e, parseLogin(&e, fields[3])
	}
	return e, parseChange(&e, fields[2], fields[3])
}

// parseChange reads "<state> <user>".
func parseChange(e *presence.Entry, cause, rest string) (ok bool) {
	number, err := strconv.ParseUint(cause, 10, 8)
	state, user, found := strings.Cut(rest, " ")
	if err != nil || !found {
		return false
	}
	e.Cause, e.UserID = presence.Cause(number), user
	e.State, ok = parseState(state)
	return ok && isUser(user)
}

// parseLogin reads "<slot> <generation> <order> <connection> <node> <platform> <device> <user>".
func parseLogin(e *presence.Entry, rest string) (ok bool) {
	fields := strings.SplitN(rest, " ", 8)
	if len(fields) != 8 {
		return false
	}
	generation, genErr := strconv.ParseInt(fields[1], 10, 64)
	order, orderErr := strconv.ParseInt(fields[2], 10, 64)
	platform, platErr := strconv.ParseUint(fields[5], 10, 8)
	w := &presence.Winner{
		Slot: fields[0], Generation: generation, Order: order, Connection: fields[3], Node: fields[4],
		Platform: presence.Platform(platform), Device: fields[6],
	}
	e.Login, e.UserID = w, fields[7]
	return genErr == nil && orderErr == nil && platErr == nil && w.Platform.Valid() && isUser(e.UserID)
}

func isUser(id string) bool {
	var c checks
	c.user(id)
	return c.err == nil
}
