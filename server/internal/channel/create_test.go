package channel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

func TestCreateWithAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	request := func(change func(*CreateRequest)) CreateRequest {
		r := CreateRequest{ChannelID: "team", MembersOnly: true, UserIDs: []string{"bob", "ann"}, IdempotencyKey: "key"}
		if change != nil {
			change(&r)
		}
		return r
	}
	first, duplicate, err := b.svc.Create(as(t, boss), request(nil))
	if err != nil || duplicate {
		t.Fatalf("first: %t, %v", duplicate, err)
	}
	if err := b.svc.RemoveMembers(as(t, boss), "team", []string{"bob"}); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Advance(t.Context(), []Advance{{ChannelID: "team", Numbers: Numbers{Head: 2, Count: 1, LastMessage: 1}}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	b.clock.pass(time.Hour)
	want := first
	want.Numbers = Numbers{Head: 2, Count: 1, LastMessage: 1}
	told := len(b.notified)
	// A repeat may announce the channel again, because the first attempt may have ended before its
	// announcement.
	strange := func(c Change) bool { return c.ChannelID != "team" || len(c.UserIDs) > 0 }
	for name, r := range map[string]CreateRequest{
		"the same":                  request(nil),
		"members in another order":  request(func(r *CreateRequest) { r.UserIDs = []string{"ann", "bob"} }),
		"a member named twice":      request(func(r *CreateRequest) { r.UserIDs = []string{"ann", "bob", "ann"} }),
		"the caller named a member": request(func(r *CreateRequest) { r.UserIDs = []string{"bob", "boss", "ann"} }),
	} {
		row, duplicate, err := b.svc.Create(as(t, boss), r)
		if diff := cmp.Diff(want, row); err != nil || !duplicate || diff != "" {
			t.Errorf("%s: %t, %v %s", name, duplicate, err, diff)
		}
	}
	other := can("other", "*", ident.Manage)
	for name, tc := range map[string]struct {
		p    *ident.Principal
		r    CreateRequest
		want fault.Reason
	}{
		"no key":                {boss, request(func(r *CreateRequest) { r.IdempotencyKey = "" }), fault.ChannelExists},
		"another key":           {boss, request(func(r *CreateRequest) { r.IdempotencyKey = "key2" }), fault.ChannelExists},
		"another caller":        {other, request(nil), fault.ChannelExists},
		"another kind":          {boss, request(func(r *CreateRequest) { r.MembersOnly = false }), fault.IdempotencyKeyReused},
		"a member more":         {boss, request(func(r *CreateRequest) { r.UserIDs = append(r.UserIDs, "cem") }), fault.IdempotencyKeyReused},
		"a member less":         {boss, request(func(r *CreateRequest) { r.UserIDs = r.UserIDs[:1] }), fault.IdempotencyKeyReused},
		"ids that run together": {boss, request(func(r *CreateRequest) { r.UserIDs = []string{"annbob"} }), fault.IdempotencyKeyReused},
	} {
		_, duplicate, err := b.svc.Create(as(t, tc.p), tc.r)
		if check(t, name, err, tc.want); duplicate {
			t.Errorf("%s is told to be a duplicate", name)
		}
		f, _ := fault.As(err)
		if field := map[fault.Reason]string{fault.ChannelExists: "channel_id", fault.IdempotencyKeyReused: "idempotency_key"}[tc.want]; f.Kind != fault.AlreadyExists || f.Field != field {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// bob was removed, and no repeat adds bob again.
	if got := b.members("team"); !slices.Equal(got, []string{"ann", "boss"}) || slices.ContainsFunc(b.notified[told:], strange) {
		t.Errorf("the repeats left %v and told %v", got, b.notified)
	}
	// The same key creates another channel.
	if _, duplicate, err := b.svc.Create(as(t, boss), request(func(r *CreateRequest) { r.ChannelID = "team2" })); err != nil || duplicate {
		t.Errorf("another channel: %t, %v", duplicate, err)
	}
}

// No Create call counts as a repeat if the existing channel has no key, like every channel of an
// older server: it fails with CHANNEL_EXISTS.
func TestCreateOverAChannelWithoutAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.access.cfg.Store.Ensure(t.Context(), "open", b.clock.now()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.svc.Create(as(t, boss), CreateRequest{ChannelID: "team"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"open", "team"} {
		for _, key := range []string{"", "key"} {
			_, _, err := b.svc.Create(as(t, boss), CreateRequest{ChannelID: id, IdempotencyKey: key})
			check(t, id+" with key "+key, err, fault.ChannelExists)
		}
	}
}

// A caller of Create that got no reply repeats the call with its key and gets the channel.
func TestCreateRetryAfterLostReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.script(nil, func(context.Context, string) error { return errors.New("reply lost") })
	r := CreateRequest{ChannelID: "team", MembersOnly: true, UserIDs: []string{"bob"}, IdempotencyKey: "key"}
	_, _, err := b.svc.Create(as(t, boss), r)
	check(t, "with the reply lost", err, fault.OutcomeUnknown)
	b.store.script(nil, nil)
	row, duplicate, err := b.svc.Create(as(t, boss), r)
	if err != nil || !duplicate || row.ChannelID != "team" || !row.MembersOnly || row.CreatedBy != "boss" {
		t.Fatalf("again: %+v, %t, %v", row, duplicate, err)
	}
	if got := b.members("team"); !slices.Equal(got, []string{"bob", "boss"}) {
		t.Errorf("members: %v", got)
	}
}
