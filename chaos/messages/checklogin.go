package messages

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The names of broken promises about signing out.
const (
	// RevokedAccepted: a call that began more than a second after the sign-out of its token was
	// acknowledged was accepted, or a stream of that token lived on for longer than it may.
	RevokedAccepted chaos.Name = "revoked-accepted"
	// UnrevokedRefused: a token that nobody had signed out was refused as if it were, or in another
	// way that makes clients forget it.
	UnrevokedRefused chaos.Name = "unrevoked-refused"
	// RevocationUnknown: a node said for seconds that it cannot tell whether tokens were revoked,
	// although it reached the store.
	RevocationUnknown chaos.Name = "revocation-unknown"
)

const (
	// refuseLimit is the time after a sign-out's acknowledgement from which on its tokens are refused.
	refuseLimit = second
	// frameSlack is how much later than promised a client on a busy machine may see a stream's end.
	frameSlack = int64(1500 * time.Millisecond)
	// endByRedis and endUnknown are added while the node does not reach the store: it then asks
	// Redis about its streams, twice a second. If Redis can't tell either, it ends them within 6 s.
	endByRedis, endUnknown = int64(1500 * time.Millisecond), 8 * second
	// unreachableLimit is the life of the declaration that Redis has all revocations, and a second.
	unreachableLimit = 6 * second
	// unknownLimit is how long a node that reaches the store may say that it cannot tell. A few
	// lost replies are enough for a moment without knowledge, and on a machine without a free core
	// the engines answered too late for up to 5 s.
	unknownLimit = 10 * second
	// aftermath is how long after the end of a fault connections may still be broken.
	aftermath = 5 * second
)

var (
	tokenRevoked      = parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED.String()
	revocationUnknown = parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN.String()
	// admitted are the reasons that only a call can have whose token was accepted.
	admitted = []string{
		parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED.String(), parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE.String(),
		parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING.String(), parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD.String(),
		parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND.String(), parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN.String(),
	}
)

// unauthenticated is the code for which clients forget a token.
const unauthenticated = "unauthenticated"

// accepted reports whether the node certainly accepted the token.
func (c *LoginCall) accepted() bool {
	if c.streaming() {
		return c.First != 0 || slices.Contains(admitted, c.Reason)
	}
	return c.Outcome == chaos.OK || slices.Contains(admitted, c.Reason)
}

// signedOut is when the sign-out of a login was first requested, and when it was acknowledged:
// math.MaxInt64 if it was not.
type signedOut struct{ asked, acked int64 }

// checkLogins checks the calls of the clients that sign out.
func (c *checker) checkLogins() {
	logins := make(map[string]*signedOut)
	for i := range c.h.Logins {
		call := &c.h.Logins[i]
		if logins[call.User] == nil {
			logins[call.User] = &signedOut{asked: math.MaxInt64, acked: math.MaxInt64}
		}
		if call.Kind == SignOut {
			logins[call.User].asked = min(logins[call.User].asked, call.Begin)
		}
	}
	for i := range c.h.Logins {
		c.checkSignOut(&c.h.Logins[i], logins[c.h.Logins[i].User])
	}
	across, refused := 0, 0
	for i := range c.h.Logins {
		call := &c.h.Logins[i]
		out := logins[call.User]
		c.checkRefused(call, out)
		switch {
		case call.Kind == SignOut || call.Token == Laptop || out.acked == math.MaxInt64:
		case call.Begin > out.acked+refuseLimit:
			c.checkAccepted(call, out)
			if call.Reason == tokenRevoked {
				refused++
			}
		case call.First != 0 && call.End > out.asked:
			c.checkStreamEnd(call, out)
			across++
		}
		c.checkFinal(call, out)
	}
	c.checkUnknown()
	c.checkOthersRefused()
	if c.h.Touched != 0 && (across == 0 || refused == 0) {
		c.Reportf(chaos.Unobserved, "", 0, "%d streams lived when their tokens were signed out, and %d calls were refused after that", across, refused)
	}
}

// checkSignOut checks the result of a sign-out, and notes its acknowledgement. TOKEN_REVOKED for a
// repeat is one: the first call did it.
func (c *checker) checkSignOut(call *LoginCall, out *signedOut) {
	switch {
	case call.Kind != SignOut || call.Outcome == chaos.Unknown || again(call.Code):
	case call.Outcome == chaos.OK, call.Reason == tokenRevoked && call.Begin > out.asked:
		out.acked = min(out.acked, call.End)
	default:
		c.reportLoginf(UnrevokedRefused, call, call.End, "was refused: %s %s", call.Code, call.Err)
	}
}

// checkRefused reports a token that was refused although nobody had asked for its revocation.
func (c *checker) checkRefused(call *LoginCall, out *signedOut) {
	if call.Kind == SignOut || call.Token != Laptop && call.End >= out.asked {
		return
	}
	if call.Reason == tokenRevoked || call.Code == unauthenticated {
		c.reportLoginf(UnrevokedRefused, call, call.End, "was refused, though nobody had signed it out: %s %s", call.Code, call.Err)
	}
}

// checkAccepted checks a call that began when the token had to be refused.
func (c *checker) checkAccepted(call *LoginCall, out *signedOut) {
	if call.accepted() && !c.unreachable(call.Addr, out, call.Begin) {
		c.reportLoginf(RevokedAccepted, call, call.End, "was accepted, and began %.3fs after the sign-out was acknowledged",
			seconds(call.Begin-out.acked))
	}
}

// checkStreamEnd checks a stream that was open when its token was signed out.
func (c *checker) checkStreamEnd(call *LoginCall, out *signedOut) {
	from := out.acked
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		// A node that stands still, or that no packet leaves, ends its streams afterwards.
		if frozen(f) && f.Target == call.Addr && f.Begin <= call.End && f.End >= out.asked {
			from = max(from, f.End)
		}
	}
	limit := refuseLimit + frameSlack
	if c.anyOf(out.asked-refuseLimit, call.End, storeAway(call.Addr)) {
		limit += endByRedis
		if c.anyOf(out.asked-refuseLimit, call.End, redisAway) {
			limit += endUnknown
		}
	}
	if c.unreachable(call.Addr, out, out.acked+refuseLimit) {
		limit += unreachableLimit
	}
	if call.End > from+limit {
		c.reportLoginf(RevokedAccepted, call, call.End, "lived until %.3fs after the sign-out was acknowledged, its last message came after %.3fs: %s %s",
			seconds(call.End-out.acked), seconds(call.Last-out.acked), call.Reason, call.Err)
	}
}

// checkFinal checks a call at the end, when every node can tell.
func (c *checker) checkFinal(call *LoginCall, out *signedOut) {
	right := call.Outcome == chaos.OK
	if call.Token != Laptop {
		right = call.Reason == tokenRevoked || out.acked > call.Begin-refuseLimit
	}
	if call.Final && !right {
		c.reportLoginf(chaos.Liveness, call, call.End, "had a wrong result though nothing was broken: %s %s", call.Outcome, call.Err)
	}
}

// checkUnknown reports nodes that could not tell for too long, although nothing was between them
// and the store.
func (c *checker) checkUnknown() {
	since := make(map[string]int64) // when a node first said so, since it last accepted a token
	for _, call := range c.loginsByEnd() {
		switch {
		case call.accepted():
			delete(since, call.Addr)
		case call.Reason != revocationUnknown:
		case since[call.Addr] == 0:
			since[call.Addr] = call.End
		case call.End-since[call.Addr] > unknownLimit &&
			!c.anyOf(since[call.Addr]-refuseLimit, call.End, func(f *chaos.Fault) bool { return storeAway(call.Addr)(f) || restarts(f, call.Addr) }):
			c.reportLoginf(RevocationUnknown, call, call.End, "and all before it since %.3fs: %s", seconds(since[call.Addr]), call.Err)
		}
	}
}

func (c *checker) loginsByEnd() []*LoginCall {
	calls := make([]*LoginCall, len(c.h.Logins))
	for i := range c.h.Logins {
		calls[i] = &c.h.Logins[i]
	}
	slices.SortStableFunc(calls, func(a, b *LoginCall) int { return cmp.Compare(a.End, b.End) })
	return calls
}

// checkOthersRefused reports calls of all other clients that were refused for their token, which is
// valid for the whole run.
func (c *checker) checkOthersRefused() {
	for i := range c.h.Ops {
		if op := &c.h.Ops[i]; op.Code == unauthenticated {
			c.Reportf(UnrevokedRefused, op.Channel, op.End, "%s: %s", op.brief(), op.Err)
		}
	}
	for i := range c.h.Pieces {
		if p := &c.h.Pieces[i]; p.Code == unauthenticated {
			c.Reportf(UnrevokedRefused, "", p.End, "a delta at %s: %s", p.Addr, p.Err)
		}
	}
	for i := range c.h.Gates {
		if g := &c.h.Gates[i]; g.Reason == tokenRevoked {
			c.Reportf(UnrevokedRefused, g.Channel, g.End, "%s of %s at %s: %s", g.Kind, g.User, g.Addr, g.Err)
		}
	}
}

// unreachable reports whether a node may not know of a sign-out yet at a time. All three ways to it
// must be broken: the store is away from the node, the announcement was lost, and neither the node
// that was called nor the keeper could copy the revocation to Redis. Then the node believes the
// copy until nobody has renewed the declaration that it is complete for unreachableLimit.
func (c *checker) unreachable(addr string, out *signedOut, at int64) bool {
	return at <= out.acked+unreachableLimit && c.anyOf(at, at, storeAway(addr)) && c.anyOf(out.asked, out.acked, announcementLost) &&
		c.anyOf(out.asked, out.acked, func(f *chaos.Fault) bool { return redisAway(f) && f.Target != addr })
}

// anyOf reports whether a fault of a kind, or its aftermath, overlaps a time.
func (c *checker) anyOf(from, to int64, is func(f *chaos.Fault) bool) bool {
	return slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool { return f.Begin <= to && f.End+aftermath >= from && is(&f) })
}

func frozen(f *chaos.Fault) bool {
	return f.Name == string(chaos.NodeStop) || f.Name == string(chaos.NodeIsolate)
}

func restarts(f *chaos.Fault, addr string) bool {
	return f.Name == string(chaos.Roll) || strings.HasPrefix(f.Name, "node-") && f.Target == addr
}

// storeAway returns a function that reports whether a fault keeps the store from a node.
func storeAway(addr string) func(f *chaos.Fault) bool {
	return func(f *chaos.Fault) bool {
		return strings.HasPrefix(f.Name, "mongo-") || (f.Name == string(chaos.CutMongo) || f.Name == string(chaos.StallMongo)) && f.Target == addr
	}
}

// redisAway reports whether a fault can keep Redis from a node, or make it lose or refuse writes.
func redisAway(f *chaos.Fault) bool {
	return strings.HasPrefix(f.Name, "redis-") || f.Name == string(chaos.CutRedis) || f.Name == string(chaos.StallRedis)
}

// announcementLost reports whether nodes may not hear each other during a fault.
func announcementLost(f *chaos.Fault) bool {
	return strings.HasPrefix(f.Name, "nats-") || f.Name == string(chaos.CutNATS) || f.Name == string(chaos.StallNATS) || frozen(f)
}

// reportLoginf reports a violation of a call.
func (c *checker) reportLoginf(name chaos.Name, call *LoginCall, at int64, format string, args ...any) {
	args = append([]any{call.Kind, call.Token, call.User, call.Addr, seconds(call.Begin), seconds(call.End)}, args...)
	c.Reportf(name, call.User, at, "%s with the %s token of %s at %s [%.3fs to %.3fs] "+format, args...)
}

// summarizeLogins writes how soon after the acknowledgement of a sign-out calls with the tokens
// were refused, and their streams ended. That includes nodes that did not have to know of it yet.
func (h *History) summarizeLogins(w io.Writer) {
	acked := make(map[string]int64)
	for i := range h.Logins {
		if call := &h.Logins[i]; call.Kind == SignOut && (call.Outcome == chaos.OK || call.Reason == tokenRevoked) && acked[call.User] == 0 {
			acked[call.User] = call.End
		}
	}
	calls := make(chaos.Tally[Kind])
	var later, refused, unknown int
	var latest int64
	var ends []int64
	for i := range h.Logins {
		call := &h.Logins[i]
		calls.Add(call.Kind, call.Outcome)
		at := acked[call.User]
		switch {
		case call.Kind == SignOut || call.Token == Laptop || at == 0:
		case call.Begin > at:
			later++
			switch {
			case call.accepted():
				latest = max(latest, call.Begin-at)
			case call.Reason == tokenRevoked:
				refused++
			case call.Reason == revocationUnknown:
				unknown++
			}
		case call.First != 0 && call.End > at:
			ends = append(ends, call.End-at)
		}
	}
	_, _ = fmt.Fprintf(w, "calls and streams of clients that sign out:\n")
	calls.Write(w)
	_, _ = fmt.Fprintf(w, "%d logins signed out, and %d calls afterwards: %d refused, %d not known; the last accepted one began after %.3fs\n",
		len(acked), later, refused, unknown, seconds(latest))
	if slices.Sort(ends); len(ends) > 0 {
		_, _ = fmt.Fprintf(w, "%d streams ended after the sign-out: half of them within %.3fs, the last after %.3fs\n",
			len(ends), seconds(ends[len(ends)/2]), seconds(ends[len(ends)-1]))
	}
}
