package messages

import (
	"slices"
	"testing"

	"github.com/parleyhq/parley/chaos"
)

// The times of the sign-out in the story.
const outAsked, outAcked = 5 * sec, 5*sec + sec/10

// signOut adds a login to the story: a stream on n2 that its sign-out through n1 ends, and a call
// on n2 afterwards.
func (s *story) signOut() {
	s.login(LoginCall{Kind: SignOut, Addr: "n1", Begin: outAsked, End: outAcked})
	s.login(LoginCall{
		Kind: Stream, Token: Twin, Begin: sec, First: sec + 1, Last: outAcked, End: outAcked + sec/100, Outcome: chaos.Failed, Code: unauthenticated,
		Reason: tokenRevoked,
	})
	s.refused(7*sec, tokenRevoked)
}

// login adds a call, on n2 with the phone's token unless it says otherwise.
func (s *story) login(call LoginCall) *LoginCall {
	if call.User == "" {
		call.User = loginPrefix + "0-0"
	}
	if call.Token == "" {
		call.Token = Phone
	}
	if call.Addr == "" {
		call.Addr = "n2"
	}
	if call.Kind == "" {
		call.Kind = Info
	}
	if call.End == 0 {
		call.End = call.Begin + sec/100
	}
	if call.Outcome == "" {
		call.Outcome = chaos.OK
	}
	s.h.Logins = append(s.h.Logins, call)
	return &s.h.Logins[len(s.h.Logins)-1]
}

// refused adds a call that was refused for a reason.
func (s *story) refused(begin int64, reason string) *LoginCall {
	code := unauthenticated
	if reason == revocationUnknown {
		code = "unavailable"
	}
	return s.login(LoginCall{Begin: begin, Outcome: chaos.Failed, Reason: reason, Code: code})
}

// out and held are the sign-out and the stream of the story.
func (s *story) out() *LoginCall  { return &s.h.Logins[0] }
func (s *story) held() *LoginCall { return &s.h.Logins[1] }

// broken adds a fault.
func (s *story) broken(name chaos.FaultName, target string, from, to int64) {
	s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(name), Target: target, Begin: from, End: to})
}

func TestCheckLogins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want   chaos.Name // empty if nothing may be found
		name   string
		change func(s *story)
	}{
		{"", "as it is", func(*story) {}},
		{"", "a call within the second is accepted", func(s *story) { s.login(LoginCall{Begin: outAcked + 9*sec/10}) }},
		{"", "a call from within the second is answered late", func(s *story) { s.login(LoginCall{Begin: outAcked + 9*sec/10, End: 9 * sec}) }},
		{RevokedAccepted, "a call after the second is accepted", func(s *story) { s.login(LoginCall{Begin: outAcked + 11*sec/10}) }},
		{RevokedAccepted, "a call of another token of the ssid is accepted", func(s *story) {
			s.login(LoginCall{Token: Twin, Begin: outAcked + 11*sec/10})
		}},
		{RevokedAccepted, "the node that was called accepts a call much later", func(s *story) { s.login(LoginCall{Addr: "n1", Begin: 11 * sec}) }},
		{RevokedAccepted, "a call fails for a reason that only an accepted one can have", func(s *story) {
			s.login(LoginCall{Begin: 8 * sec, Outcome: chaos.Failed, Code: "not_found", Reason: admitted[4], Kind: Consume})
		}},
		{"", "a call after the second is not answered", func(s *story) {
			s.login(LoginCall{Begin: 8 * sec, Outcome: chaos.Unknown, Code: "unavailable"})
		}},
		{"", "the token of another ssid is accepted", func(s *story) { s.login(LoginCall{Token: Laptop, Begin: 9 * sec}) }},
		{"", "a call is accepted, and the sign-out has no answer", func(s *story) {
			s.login(LoginCall{User: "login-0-1", Kind: SignOut, Begin: outAsked, Outcome: chaos.Unknown})
			s.login(LoginCall{User: "login-0-1", Begin: 9 * sec})
		}},
		{RevokedAccepted, "a call is accepted, and the repeated sign-out found the token revoked", func(s *story) {
			s.login(LoginCall{User: "login-0-1", Kind: SignOut, Begin: outAsked, Outcome: chaos.Unknown})
			s.refused(6*sec, tokenRevoked).User = "login-0-1"
			s.h.Logins[len(s.h.Logins)-1].Kind = SignOut
			s.login(LoginCall{User: "login-0-1", Begin: 9 * sec})
		}},
		{"", "a repeated sign-out finds the token revoked", func(s *story) {
			s.out().Outcome = chaos.Unknown
			s.refused(outAcked+1, tokenRevoked).Kind = SignOut
		}},
		{UnrevokedRefused, "a first sign-out finds the token revoked", func(s *story) {
			s.refused(6*sec, tokenRevoked).Kind = SignOut
			s.h.Logins[len(s.h.Logins)-1].User = "login-0-1"
		}},
		{"", "a sign-out cannot be stored at first", func(s *story) {
			s.login(LoginCall{Kind: SignOut, Begin: outAsked - 1, Outcome: chaos.Unknown, Code: "unavailable"})
		}},
		{"", "a call is refused before the sign-out has its answer", func(s *story) { s.refused(outAsked+1, tokenRevoked) }},
		{UnrevokedRefused, "a call is refused before the sign-out", func(s *story) { s.refused(outAsked-sec, tokenRevoked) }},
		{UnrevokedRefused, "the token of another ssid is refused", func(s *story) { s.refused(9*sec, tokenRevoked).Token = Laptop }},
		{UnrevokedRefused, "a stream of the token of another ssid ends as revoked", func(s *story) {
			c := s.refused(sec, tokenRevoked)
			c.Token, c.Kind, c.First, c.End = Laptop, Stream, 2*sec, outAcked
		}},
		{UnrevokedRefused, "a client without an answer is told to forget its token", func(s *story) {
			c := s.refused(2*sec, revocationUnknown)
			c.Token, c.Code = Laptop, unauthenticated
		}},
		{"", "a client without an answer is told to wait", func(s *story) { s.refused(2*sec, revocationUnknown) }},
		{UnrevokedRefused, "a writer's token is refused", func(s *story) {
			s.op(Op{Client: "w", Kind: Edit, Begin: sec, Channel: channel, ClientMsgID: "x", Outcome: chaos.Failed, Code: unauthenticated})
		}},
		{UnrevokedRefused, "a generator's token is refused", func(s *story) {
			s.h.Pieces = append(s.h.Pieces, Piece{Code: unauthenticated, Outcome: chaos.Failed})
		}},
		{UnrevokedRefused, "a keeper's token is refused", func(s *story) {
			s.h.Gates = append(s.h.Gates, GateCall{Reason: tokenRevoked, Outcome: chaos.Failed})
		}},
		{chaos.Liveness, "a token is not known to be revoked at the end", func(s *story) { s.refused(13*sec, revocationUnknown).Final = true }},
		{chaos.Liveness, "the token of another ssid has no answer at the end", func(s *story) {
			s.login(LoginCall{Token: Laptop, Begin: 13 * sec, Outcome: chaos.Unknown, Final: true})
		}},
		{chaos.Unobserved, "nobody signed out", func(s *story) { s.h.Logins = nil }},
		{chaos.Unobserved, "no stream was open", func(s *story) { s.held().First = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			tt.change(s)
			s.expectLogins(tt.want)
		})
	}
}

// expectLogins reports an error unless there is a violation with the name, and no other one. An
// empty name means none. Other violations without an object do not count: a GateCall causes some,
// because the story has no gated channel.
func (s *story) expectLogins(want chaos.Name) {
	s.Helper()
	found := slices.DeleteFunc(Check(s.h, s.t), func(v chaos.Violation) bool { return v.Object == "" && v.Name != want })
	if len(found) == 0 && want != "" {
		s.Errorf("found nothing, want %q", want)
	}
	for _, v := range found {
		if v.Name != want {
			s.Errorf("found %s, want %q", v, want)
		}
	}
}

func TestCheckStreamsOfLogins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want   chaos.Name
		name   string
		change func(s *story)
	}{
		{"", "a stream ends late on a busy machine", func(s *story) { s.held().End = outAcked + 24*sec/10 }},
		{RevokedAccepted, "a stream ends late", func(s *story) { s.held().End = outAcked + 26*sec/10 }},
		{RevokedAccepted, "a stream does not end", func(s *story) {
			*s.held() = LoginCall{
				User: s.held().User, Token: Phone, Addr: "n2", Kind: Join, Begin: sec, First: 2 * sec, Last: 12 * sec, End: 12 * sec, Outcome: chaos.OK,
				Left: true,
			}
		}},
		{RevokedAccepted, "a stream within the second lives on", func(s *story) {
			s.login(LoginCall{Kind: Stream, Begin: outAcked + sec/2, First: outAcked + sec/2, End: 10 * sec})
		}},
		{RevokedAccepted, "a stream after the second has a message", func(s *story) {
			s.login(LoginCall{Kind: Join, Begin: outAcked + 2*sec, First: outAcked + 2*sec, Outcome: chaos.Failed, Reason: tokenRevoked})
		}},
		{"", "a stream ended for another reason before", func(s *story) {
			s.login(LoginCall{Kind: Stream, Begin: sec, First: sec, End: 2 * sec, Outcome: chaos.Unknown})
		}},
		{"", "the node of a stream stood still", func(s *story) {
			s.broken(chaos.NodeStop, "n2", 4*sec, 9*sec)
			s.held().End = 10 * sec
		}},
		{RevokedAccepted, "the node of a stream stood still, and goes on with it", func(s *story) {
			s.broken(chaos.NodeStop, "n2", 4*sec, 7*sec)
			s.held().End = 10 * sec
		}},
		{RevokedAccepted, "another node stood still", func(s *story) {
			s.broken(chaos.NodeStop, "n1", 4*sec, 9*sec)
			s.held().End = 10 * sec
		}},
		{"", "Redis had to tell about a stream", func(s *story) {
			s.broken(chaos.CutMongo, "n2", 4*sec, 12*sec)
			s.held().End = outAcked + 39*sec/10
		}},
		{RevokedAccepted, "Redis did not tell about a stream", func(s *story) {
			s.broken(chaos.CutMongo, "n2", 4*sec, 12*sec)
			s.held().End = 10 * sec
		}},
		{"", "nobody could tell about a stream", func(s *story) {
			s.broken(chaos.CutMongo, "n2", 4*sec, 12*sec)
			s.broken(chaos.CutRedis, "n2", 4*sec, 12*sec)
			s.held().End = 13 * sec
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			tt.change(s)
			s.expectLogins(tt.want)
		})
	}
}

// TestCheckOfUnreachableNodes checks that a node need not know of a sign-out only if all three ways
// to it are broken.
func TestCheckOfUnreachableNodes(t *testing.T) {
	t.Parallel()
	type fault struct {
		name   chaos.FaultName
		target string
	}
	store, word, others := fault{chaos.CutMongo, "n2"}, fault{chaos.NATSAway, "nats"}, fault{chaos.RedisMemory, "redis"}
	for _, tt := range []struct {
		name   string
		faults []fault
		want   chaos.Name
	}{
		{"all ways", []fault{store, word, others}, ""},
		{"the store of all nodes", []fault{{chaos.MongoKill, "mongo-0"}, word, others}, ""},
		{"Redis of the node that was called", []fault{store, word, {chaos.CutRedis, "n1"}}, ""},
		{"the store only", []fault{store}, RevokedAccepted},
		{"the store of another node", []fault{{chaos.CutMongo, "n1"}, word, others}, RevokedAccepted},
		{"not the announcement", []fault{store, others}, RevokedAccepted},
		{"not Redis", []fault{store, word}, RevokedAccepted},
		{"Redis of the node itself", []fault{store, word, {chaos.CutRedis, "n2"}}, RevokedAccepted},
		{"not the store", []fault{word, others}, RevokedAccepted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			for _, f := range tt.faults {
				s.broken(f.name, f.target, 4*sec, 8*sec)
			}
			s.login(LoginCall{Begin: 7 * sec})
			s.expectLogins(tt.want)
		})
	}
	late := map[string]func(s *story){
		"the declaration of Redis has expired": func(s *story) { s.login(LoginCall{Begin: outAcked + 61*sec/10}) },
		"all was mended long ago":              func(s *story) { s.login(LoginCall{Begin: 40 * sec}) },
		"Redis was away only later": func(s *story) {
			s.h.Faults[len(s.h.Faults)-1].Begin = outAcked + sec
			s.login(LoginCall{Begin: 7 * sec})
		},
		"a stream lives on": func(s *story) { s.held().End = 25 * sec },
	}
	for name, change := range late {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			for _, f := range []fault{store, word, others} {
				s.broken(f.name, f.target, 4*sec, 8*sec)
			}
			change(s)
			s.expectLogins(RevokedAccepted)
		})
	}
}

// TestCheckOfUnknown checks that a node that reaches the store may say only for a moment that it
// can't tell.
func TestCheckOfUnknown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(s *story)
		want   chaos.Name
	}{
		{"Redis is away", func(s *story) { s.broken(chaos.RedisKill, "redis", 0, 16*sec) }, RevocationUnknown},
		{"another node has no store", func(s *story) { s.broken(chaos.CutMongo, "n1", 0, 16*sec) }, RevocationUnknown},
		{"the node has no store", func(s *story) { s.broken(chaos.CutMongo, "n2", 0, 16*sec) }, ""},
		{"there is no store", func(s *story) { s.broken(chaos.MongoStop, "mongo-1", 0, 16*sec) }, ""},
		{"the node was killed", func(s *story) { s.broken(chaos.NodeKill, "n2", 8*sec, 9*sec) }, ""},
		{"the node knows in between", func(s *story) { s.login(LoginCall{Token: Laptop, Begin: 11*sec + sec/2}) }, ""},
		{"other nodes know", func(s *story) { s.login(LoginCall{Token: Laptop, Addr: "n1", Begin: 11*sec + sec/2}) }, RevocationUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			for _, at := range []int64{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17} {
				s.refused(at*sec, revocationUnknown)
			}
			tt.change(s)
			s.expectLogins(tt.want)
		})
	}
}
