package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"
)

// grace is how long after SignOut has returned other nodes may still admit a token, and streams of
// it may live.
const grace = time.Second

// login is one login of a user: the tokens with one ssid.
type login struct {
	user, ssid string

	// The fields below are guarded by ledger.mu.

	tokens []string
	// began is when SignOut was called first, and returned when it succeeded. They are zero before.
	began, returned time.Time
}

// digest is a number that depends on the seed and on what it is for.
func digest(seed uint64, what, id string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", seed, what, id))
	return binary.LittleEndian.Uint64(sum[:])
}

// signsOutAtTheEnd reports whether a user is of the half that signs out at the end of their day.
// The others only leave.
func signsOutAtTheEnd(seed uint64, user string) bool { return digest(seed, "half", user)%2 == 0 }

// ssidOf returns the ssid of a login. A nick can have characters that an ssid cannot.
func ssidOf(user, login string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:12]) + "-" + login
}

// ledger knows all logins and which of them were signed out, and judges the answers to calls and
// streams with their tokens. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex // guards the fields below, and the logins
	// logins are all logins, and revoked those that were signed out, in the order of the sign-outs.
	logins, revoked []*login
	// answers counts the answers to calls and streams of the thieves.
	answers map[answerKey]int
	// during counts those in parts with faults.
	during map[faultKey]int
	// others counts what is neither right nor wrong, by name.
	others   map[string]int
	offences map[offence]*offences
	// signOuts are the times that SignOut took, refusals those from its return to the first refusal by
	// each node, and ends those to the ends of live streams, by the phase of the sign-out. admitted
	// are how long after the return calls were sent that were admitted.
	signOuts, refusals, ends map[phase][]time.Duration
	admitted                 []time.Duration
}

// age is the state of a token when a trial with it was sent.
type age int

// The ages. A token is fresh for the time grace after SignOut has returned.
const (
	unrevoked age = iota + 1
	fresh
	revoked
)

// String returns the age in words.
func (a age) String() string {
	switch a {
	case fresh:
		return "tokens in the second after their sign-out"
	case revoked:
		return "tokens later on"
	default:
		return "other tokens"
	}
}

// answerKey is what answers are counted by.
type answerKey struct {
	kind   string
	node   int
	age    age
	answer answer
}

// faultKey is what answers are counted by, besides.
type faultKey struct {
	fault  string
	age    age
	answer answer
}

// offence is a way to break the promise.
type offence string

// The offences.
const (
	// acceptedRevoked is a call or a stream that began more than grace after the sign-out.
	acceptedRevoked offence = "calls and streams with revoked tokens were admitted"
	// endedLate is a live stream that ended later than grace after the sign-out.
	endedLate offence = "streams of revoked tokens lived for too long"
	// endedOtherwise is a login whose presence did not end with TOKEN_REVOKED.
	endedOtherwise offence = "presences that were signed out did not end with TOKEN_REVOKED"
	// failedSignOut is a SignOut that did not succeed.
	failedSignOut offence = "sign-outs failed"
	// unsureValid is a call or a stream with a valid token about which a node could not tell although
	// nothing was at fault.
	unsureValid offence = "calls and streams with valid tokens failed without a fault, because a node could not tell whether they were revoked"
	// refusedValid is a call or a stream that was refused with TOKEN_REVOKED before any sign-out.
	refusedValid offence = "calls and streams with valid tokens were refused as revoked"
)

// offences are the cases of one offence: their number, and the worst of them.
type offences struct {
	n     int
	worst []offenceCase
}

type offenceCase struct {
	by   time.Duration // how much too late it was
	text string
}

func newLedger() *ledger {
	return &ledger{
		answers: make(map[answerKey]int), during: make(map[faultKey]int),
		others: make(map[string]int), offences: make(map[offence]*offences),
		signOuts: make(map[phase][]time.Duration), refusals: make(map[phase][]time.Duration), ends: make(map[phase][]time.Duration),
	}
}

// enter adds a login.
func (g *ledger) enter(user, name string) *login {
	l := &login{user: user, ssid: ssidOf(user, name)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logins = append(g.logins, l)
	return l
}

// mint adds a token to a login.
func (g *ledger) mint(l *login, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.tokens = append(l.tokens, token)
}

// begin records that SignOut is about to be called.
func (g *ledger) begin(l *login) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.began = time.Now()
}

// done records that SignOut has returned without an error.
func (g *ledger) done(l *login, p phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.returned = time.Now()
	g.revoked = append(g.revoked, l)
	g.signOuts[p] = append(g.signOuts[p], l.returned.Sub(l.began))
}

// times returns when SignOut of a login was called and when it returned; zero if it was not.
func (g *ledger) times(l *login) (began, returned time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.began, l.returned
}

// isOver reports whether SignOut of a login was called.
func (g *ledger) isOver(l *login) bool {
	began, _ := g.times(l)
	return !began.IsZero()
}

// signedOut returns the users with a login that was signed out.
func (g *ledger) signedOut() map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]bool)
	for _, l := range g.revoked {
		all[l.user] = true
	}
	return all
}

// count counts what is neither right nor wrong.
func (g *ledger) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.others[what]++
}

// trial is a call, or the opening of a stream, with a token.
type trial struct {
	login *login
	kind  string
	node  int
	sent  time.Time
}

func (t *trial) String() string {
	return fmt.Sprintf("%s of %s on node %d", t.kind, t.login.user, t.node)
}

// judge judges the answer to a trial, which came at a time during a fault or, for "", none.
func (g *ledger) judge(t *trial, a answer, at time.Time, fault string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := t.login
	after := t.sent.Sub(l.returned)
	is := unrevoked
	switch {
	case l.returned.IsZero() || after < 0:
	case after < grace:
		is = fresh
	default:
		is = revoked
	}
	g.answers[answerKey{t.kind, t.node, is, a}]++
	if fault != "" {
		g.during[faultKey{fault, is, a}]++
	}
	switch {
	case a == refused && (l.began.IsZero() || at.Before(l.began)):
		g.blame(refusedValid, 0, t.String())
	case a == unsure && is == unrevoked && fault == "":
		g.blame(unsureValid, 0, t.String())
	case a == admitted && is == fresh:
		g.admitted = append(g.admitted, after)
	case a == admitted && is == revoked:
		g.blame(acceptedRevoked, after, fmt.Sprintf("%v, sent %.2f s after its sign-out", t, after.Seconds()))
	}
}

// refusedAfter records how long after a sign-out a node was first seen to refuse a token.
func (g *ledger) refusedAfter(l *login, at time.Time, p phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusals[p] = append(g.refusals[p], at.Sub(l.returned))
}

// judgeEnd judges the end of a stream that was live: whether it ended with TOKEN_REVOKED, and when.
// works is whether the stream's node has worked since the sign-out: a node that does not cannot end
// a stream.
func (g *ledger) judgeEnd(t *trial, a answer, at time.Time, works bool, p phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := t.login
	if a == refused && (l.began.IsZero() || at.Before(l.began)) {
		g.blame(refusedValid, 0, t.String()+", which was live")
		return
	}
	if l.returned.IsZero() {
		return
	}
	switch after := at.Sub(l.returned); {
	case !works:
		g.others["live streams of nodes that failed around the sign-out"]++
	case a != refused && after <= grace:
		g.others["live streams that ended for another reason within the second"]++
	case after > grace:
		g.blame(endedLate, after, fmt.Sprintf("%v, ended %.2f s after the sign-out", t, after.Seconds()))
		fallthrough
	default:
		g.ends[p] = append(g.ends[p], max(after, 0))
	}
}

// blame records a case of an offence. The caller holds mu.
func (g *ledger) blame(o offence, by time.Duration, text string) {
	all := g.offences[o]
	if all == nil {
		all = new(offences)
		g.offences[o] = all
	}
	all.n++
	all.worst = append(all.worst, offenceCase{by, text})
	slices.SortStableFunc(all.worst, func(a, b offenceCase) int { return int(b.by - a.by) })
	all.worst = all.worst[:min(len(all.worst), examples)]
}

// accuse is blame for a caller that does not hold mu.
func (g *ledger) accuse(o offence, by time.Duration, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blame(o, by, text)
}
