package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// complete returns a ledger to which every call and stream was tried, as problems requires.
func complete() *ledger {
	g := newLedger()
	for _, kind := range kinds() {
		for node := range maxNodes {
			g.answers[answerKey{kind, node, revoked, refused}], g.answers[answerKey{kind, node, unrevoked, admitted}] = 1, 1
		}
	}
	g.ends[calm] = []time.Duration{0}
	return g
}

// TestJudge checks which answers break the promise, and that the verdict says so.
func TestJudge(t *testing.T) {
	t.Parallel()
	at := time.Now()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		signedOut    bool          // SignOut was called at `at` and returned 100 ms later
		sent, answer time.Duration // since at
		says         answer
		want         offence // "" if it is right
	}{
		"revoked, refused":                       {true, 2000 * ms, 2001 * ms, refused, ""},
		"revoked, admitted":                      {true, 1100 * ms, 1101 * ms, admitted, acceptedRevoked},
		"revoked long ago, admitted":             {true, time.Hour, time.Hour, admitted, acceptedRevoked},
		"revoked, no answer":                     {true, 2000 * ms, 2001 * ms, unknown, ""},
		"in the second after, admitted":          {true, 1099 * ms, 5000 * ms, admitted, ""},
		"in the second after, refused":           {true, 101 * ms, 102 * ms, refused, ""},
		"while SignOut runs, refused":            {true, 50 * ms, 51 * ms, refused, ""},
		"while SignOut runs, admitted":           {true, 50 * ms, 51 * ms, admitted, ""},
		"sent before SignOut, refused during it": {true, -50 * ms, 1 * ms, refused, ""},
		"before SignOut, refused":                {true, -50 * ms, -1 * ms, refused, refusedValid},
		"before SignOut, admitted":               {true, -50 * ms, -1 * ms, admitted, ""},
		"never signed out, refused":              {false, 0, 1 * ms, refused, refusedValid},
		"never signed out, admitted":             {false, 0, 1 * ms, admitted, ""},
		"never signed out, no answer":            {false, 0, 1 * ms, unknown, ""},
		"never signed out, cannot tell":          {false, 0, 1 * ms, unsure, unsureValid},
		"revoked, cannot tell":                   {true, 2000 * ms, 2001 * ms, unsure, ""},
	} {
		g := complete()
		l := g.enter("day/ann", "1")
		if c.signedOut {
			l.began, l.returned = at, at.Add(100*ms)
		}
		g.judge(&trial{login: l, kind: "GetPresence", node: 1, sent: at.Add(c.sent)}, c.says, at.Add(c.answer), "")
		checkOffence(t, name, g, c.want)
	}
}

// TestJudgeEnd checks which ends of live streams break the promise.
func TestJudgeEnd(t *testing.T) {
	t.Parallel()
	at := time.Now()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		signedOut bool // SignOut was called at `at` and returned 100 ms later
		end       time.Duration
		says      answer
		broken    bool // the node has failed
		want      offence
	}{
		"at once":                             {true, 101 * ms, refused, false, ""},
		"while SignOut runs":                  {true, 50 * ms, refused, false, ""},
		"within the second":                   {true, 1100 * ms, refused, false, ""},
		"too late":                            {true, 1101 * ms, refused, false, endedLate},
		"too late, for another reason":        {true, 1101 * ms, unknown, false, endedLate},
		"in time, for another reason":         {true, 500 * ms, unknown, false, ""},
		"too late, on a node that has failed": {true, 9000 * ms, unknown, true, ""},
		"before SignOut":                      {true, -1 * ms, refused, false, refusedValid},
		"never signed out":                    {false, 0, refused, false, refusedValid},
		"never signed out, on a failed node":  {false, 0, refused, true, refusedValid},
		"never signed out, another reason":    {false, 0, unknown, false, ""},
	} {
		g := complete()
		l := g.enter("day/ann", "1")
		if c.signedOut {
			l.began, l.returned = at, at.Add(100*ms)
		}
		g.judgeEnd(&trial{login: l, kind: "Subscribe"}, c.says, at.Add(c.end), !c.broken, calm)
		checkOffence(t, name, g, c.want)
	}
}

// checkOffence checks that the verdict of a ledger is one offence, or none.
func checkOffence(t *testing.T, name string, g *ledger, want offence) {
	t.Helper()
	err := (&job{flags: &flags{}, ledger: g}).verdict()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("verdict: failed: 1 %s: ", want)) || !strings.Contains(err.Error(), "day/ann")):
		t.Errorf("%s: the verdict is %v, want one of %q", name, err, want)
	}
}

// TestWorst checks that all cases of an offence are counted, and that the worst ones are named.
func TestWorst(t *testing.T) {
	t.Parallel()
	g := complete()
	l := g.enter("day/ann", "1")
	l.began = time.Now()
	l.returned = l.began
	for _, seconds := range []int{3, 9, 2, 5, 8, 4} {
		g.judge(&trial{login: l, kind: "ListTopics", sent: l.returned.Add(time.Duration(seconds) * time.Second)}, admitted, time.Now(), "")
	}
	got := strings.Join(g.problems(), "\n")
	if !strings.HasPrefix(got, "6 calls") || !strings.Contains(got, "sent 9.00 s") || strings.Contains(got, "sent 2.00 s") {
		t.Errorf("problems: %s", got)
	}
}

// TestUntried checks that a run that has tried nothing, or not everything, is not a success.
func TestUntried(t *testing.T) {
	t.Parallel()
	if got := len(newLedger().problems()); got != 2*maxNodes*len(kinds())+1 {
		t.Errorf("%d problems of a run without any trial", got)
	}
	g := complete()
	delete(g.answers, answerKey{"Consume", 2, revoked, refused})
	if got := g.problems(); len(got) != 1 || got[0] != "no Consume with a revoked token was refused on node 2" {
		t.Errorf("problems: %q", got)
	}
}

// TestSlowOffline checks that the verdict notices if offline_after applies to sign-outs.
func TestSlowOffline(t *testing.T) {
	t.Parallel()
	j := &job{flags: &flags{}, ledger: complete()}
	if err := j.verdict(); err != nil {
		t.Error(err)
	}
	j.results.offline = offlineAfter + 10*time.Millisecond
	if err := j.verdict(); err == nil {
		t.Error("the verdict is ok")
	}
}

// failure returns the error of a server's answer.
func failure(t *testing.T, code connect.Code, reason parleyv1.ErrorReason) error {
	t.Helper()
	failed := connect.NewError(code, errors.New("failed"))
	if reason != 0 {
		detail, err := connect.NewErrorDetail(&parleyv1.ErrorDetail{Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		failed.AddDetail(detail)
	}
	w := httptest.NewRecorder()
	if err := connect.NewErrorWriter().Write(w, httptest.NewRequest(http.MethodPost, "/x", http.NoBody), failed); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(w.Code)
		_, _ = out.Write(w.Body.Bytes())
	}))
	defer s.Close()
	return calls["GetPresence"](t.Context(), newNodeCalls(s.Client(), 0, strings.TrimPrefix(s.URL, "http://")), "ann")
}

// TestAnswerOf checks what each error says about the token.
func TestAnswerOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want answer
	}{
		"none":               {nil, admitted},
		"revoked":            {failure(t, connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED), refused},
		"revoked, odd code":  {failure(t, connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED), admitted},
		"cannot tell":        {failure(t, connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN), unsure},
		"ends":               {failure(t, connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN), unknown},
		"unavailable":        {failure(t, connect.CodeUnavailable, 0), unknown},
		"without the store":  {failure(t, connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE), admitted},
		"capability missing": {failure(t, connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING), admitted},
		"another refusal":    {failure(t, connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID), admitted},
		"no connection":      {connect.NewError(connect.CodeUnavailable, &net.OpError{Op: "dial", Err: errors.New("refused")}), unknown},
		"time is up":         {context.DeadlineExceeded, unknown},
	} {
		if got := answerOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v (%v)", name, got, c.want, c.err)
		}
	}
}

// TestEndDays compares who signs out in the replay with what the oracle finds.
func TestEndDays(t *testing.T) {
	t.Parallel()
	dir := writeLogs(t, map[string]string{"2005-02-08.x": oneDay, "2006-01-01.x": "[10:00] <ann> hi\n=== ann [n=a@host]  has left #ubuntu []\n[10:10] <ben> bye\n"})
	o, err := newOracle(dir)
	if err != nil {
		t.Fatal(err)
	}
	half := 0
	for seed := range uint64(64) {
		r, err := readReplay(dir)
		if err != nil {
			t.Fatal(err)
		}
		before := transitions(r.events)
		r.endDays(seed)
		got := make(map[string]bool)
		for _, e := range r.events {
			if e.act == signsOut {
				got[e.user] = true
				if !o.signedOut(seed, int(e.at/time.Minute))[e.user] || o.signedOut(seed, int(e.at/time.Minute)-1)[e.user] {
					t.Errorf("the oracle does not let %s sign out at %v", e.user, e.at)
				}
			}
		}
		// The last acts of these are disconnects: of the first two because of renames. All others are
		// there until the end.
		for _, user := range []string{"2005-02-08/ann", "2005-02-08/ann|away", "2006-01-01/ann"} {
			if got[user] != signsOutAtTheEnd(seed, user) {
				t.Errorf("seed %d: whether %s signs out: %v", seed, user, got[user])
			}
			if got[user] {
				half++
			}
			delete(got, user)
		}
		if len(got) > 0 {
			t.Errorf("seed %d: %v sign out", seed, got)
		}
		if transitions(r.events) != before {
			t.Errorf("a sign-out is not one transition")
		}
	}
	if half < 60 || half > 132 {
		t.Errorf("%d of 192 users sign out", half)
	}
}
