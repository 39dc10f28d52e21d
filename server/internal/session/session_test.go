package session

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// fakes are scripted messages and channels. The real ones are tested in package server.
type fakes struct {
	sends  []message.SendRequest
	errs   []error // of the next sends; nil once there are no more
	opened []string
	open   error
}

func (f *fakes) Send(_ context.Context, r message.SendRequest) (message.Receipt, error) {
	f.sends = append(f.sends, r)
	if len(f.errs) == 0 {
		return message.Receipt{MsgID: "m", Seq: 1}, nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return message.Receipt{}, err
}

func (f *fakes) OpenSession(_ context.Context, sessionID, ownerID, title string) error {
	f.opened = append(f.opened, sessionID+" of "+ownerID+title)
	return f.open
}

func caller(t *testing.T, actions ...ident.Action) context.Context {
	t.Helper()
	return ident.NewContext(t.Context(), &ident.Principal{
		Subject: "ann", Sessions: []ident.Capability{{Pattern: "*", Actions: actions}},
	})
}

var missing = fault.New(fault.NotFound, fault.ChannelNotFound, "")

// A session is created only after a send was refused because there is none, and then the send is
// repeated once, unchanged.
func TestAppendCreatesSession(t *testing.T) {
	t.Parallel()
	unknown := fault.New(fault.Unavailable, fault.OutcomeUnknown, "")
	for name, tc := range map[string]struct {
		errs  []error
		open  error
		sends int
		want  error
	}{
		"there is one":                         {nil, nil, 1, nil},
		"there is none":                        {[]error{missing}, nil, 2, nil},
		"another's":                            {[]error{missing}, fault.New(fault.PermissionDenied, fault.NotMember, ""), 1, fault.New(fault.PermissionDenied, fault.NotMember, "")},
		"its creation may have failed":         {[]error{missing}, unknown, 1, unknown},
		"it is not visible after its creation": {[]error{missing, missing, nil}, nil, 2, missing},
		"the send fails":                       {[]error{unknown}, nil, 1, unknown},
	} {
		f := &fakes{errs: tc.errs, open: tc.open}
		result, err := newService(f).Append(caller(t, ident.Append, ident.SendAs), AppendRequest{
			SessionID: "s", UserID: "ben", Content: "x", ClientMsgID: "c", Metadata: map[string]string{"k": "v"}, Traceparent: "t", Title: ": plans",
		})
		if (err == nil) != (tc.want == nil) || err != nil && err.Error() != tc.want.Error() || err == nil && (result.SessionID != "s" || result.MsgID != "m") {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		want := message.SendRequest{
			ChannelID: "~s", Content: "x", ClientMsgID: "c", MsgType: "user", Metadata: map[string]string{"k": "v"}, FromID: "ben", Traceparent: "t",
		}
		if len(f.sends) != tc.sends || !cmp.Equal(f.sends[0], want) || !cmp.Equal(f.sends[len(f.sends)-1], want) {
			t.Errorf("%s: sent %+v", name, f.sends)
		}
		if created := errors.Is(errors.Join(tc.errs...), missing); created != (len(f.opened) == 1) || created && f.opened[0] != "s of ben: plans" {
			t.Errorf("%s: opened %v", name, f.opened)
		}
	}
}

// A message that does not say whose session it is creates none.
func TestAppendCreatesNoSessionOfAnAssistant(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		role, userID string
		opens        bool
	}{{"assistant", "", false}, {"assistant", "ben", true}, {"", "", true}, {"user", "", true}, {"system", "", false}} {
		f := &fakes{errs: []error{missing}}
		_, err := newService(f).Append(caller(t, ident.SessionActions...), AppendRequest{
			SessionID: "s", Role: tc.role, UserID: tc.userID, Content: "x",
		})
		if tc.opens != (len(f.opened) == 1) || tc.opens != (err == nil) || err != nil && !fault.Is(err, fault.ChannelNotFound) {
			t.Errorf("%+v: %v, opened %v", tc, err, f.opened)
		}
	}
}

// What the token does not allow is refused before anything is sent or created.
func TestAppendChecksToken(t *testing.T) {
	t.Parallel()
	for field, tc := range map[string]struct {
		request AppendRequest
		lacks   ident.Action
	}{
		"session_id": {AppendRequest{Content: "x"}, ident.Append},
		"user_id":    {AppendRequest{SessionID: "s", UserID: "ben", Open: true}, ident.SendAs},
		"role":       {AppendRequest{SessionID: "s", Role: "system", Open: true}, ident.Manage},
	} {
		var held []ident.Action
		for _, a := range ident.SessionActions {
			if a != tc.lacks {
				held = append(held, a)
			}
		}
		f := &fakes{}
		service := newService(f)
		_, err := service.Append(caller(t, held...), tc.request)
		if e, ok := fault.As(err); !ok || e.Reason != fault.CapabilityMissing || e.Field != field || len(f.sends)+len(f.opened) > 0 {
			t.Errorf("%s without %s: %v, sent %v", field, tc.lacks, err, f.sends)
		}
		if _, err := service.Append(caller(t, tc.lacks, ident.Append), tc.request); err != nil {
			t.Errorf("%s with %s: %v", field, tc.lacks, err)
		}
	}
	if _, err := newService(&fakes{}).Append(t.Context(), AppendRequest{SessionID: "s", Content: "x"}); !fault.Is(err, fault.TokenInvalid) {
		t.Errorf("without a token: %v", err)
	}
}

// Only an open message may be empty.
func TestAppendEmpty(t *testing.T) {
	t.Parallel()
	f := &fakes{}
	service := newService(f)
	_, err := service.Append(caller(t, ident.Append), AppendRequest{SessionID: "s"})
	if e, ok := fault.As(err); !ok || e.Field != "content" || e.Limit != 1 || len(f.sends) > 0 {
		t.Errorf("an empty message: %v", err)
	}
	if _, err := service.Append(caller(t, ident.Append), AppendRequest{SessionID: "s", Open: true}); err != nil || !f.sends[0].Open {
		t.Errorf("an empty open message: %v, %+v", err, f.sends)
	}
}

// The id of a session that a message begins depends on the secret, the user and the client_msg_id,
// and is random without the last.
func TestNewID(t *testing.T) {
	t.Parallel()
	service := NewService(Config{Secret: []byte("k")})
	if a, b := service.newID("ann", "1"), NewService(Config{Secret: []byte("k")}).newID("ann", "1"); a != b || len(a) != 22 {
		t.Errorf("a repeat got %q and %q", a, b)
	}
	ids := map[string]bool{NewService(Config{Secret: []byte("l")}).newID("ann", "1"): true}
	for _, id := range []string{
		service.newID("ann", "1"), service.newID("ann", "2"), service.newID("ben", "1"), service.newID("ann", ""), service.newID("ann", ""),
	} {
		ids[id] = true
	}
	if len(ids) != 6 {
		t.Errorf("ids %v", ids)
	}
}
