package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

type serviceBundle struct {
	*accessBundle
	log      *fakeLog
	svc      *Service
	notified []Change
	joined   []string
	typed    []string
}

func (b *serviceBundle) PublishTyping(channelID, userID string) error {
	b.typed = append(b.typed, channelID+" "+userID)
	return errors.New("nats is away") // must not fail the call
}

func setup(t *testing.T) *serviceBundle {
	t.Helper()
	b := &serviceBundle{accessBundle: setupAccess(t), log: &fakeLog{}}
	b.svc = NewService(ServiceConfig{
		Store: b.store, Access: b.access, Log: b.log, TypingPublisher: b, Secret: []byte("secret"), Now: b.clock.now,
		Notify: func(c Change) { b.notified = append(b.notified, c) },
		Joined: func(channelID string) { b.joined = append(b.joined, channelID) },
	})
	return b
}

// as returns the context of a call by p.
func as(t *testing.T, p *ident.Principal) context.Context {
	t.Helper()
	return ident.NewContext(t.Context(), p)
}

// members returns the stored members of a channel.
func (b *serviceBundle) members(channelID string) []string {
	ms, _ := b.store.Members(context.Background(), channelID, "", 10_000)
	var ids []string
	for _, m := range ms {
		ids = append(ids, m.UserID)
	}
	return ids
}

// check fails the test unless err is a fault with this reason, or nil for the empty reason.
func check(t *testing.T, what string, err error, want fault.Reason) {
	t.Helper()
	if want == "" && err != nil || want != "" && !fault.Is(err, want) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	row, duplicate, err := b.svc.Create(as(t, boss), CreateRequest{ChannelID: "team", MembersOnly: true, UserIDs: []string{"bob", "bob", "boss", "auth0|42"}})
	if err != nil || duplicate {
		t.Fatal(duplicate, err)
	}
	want := Row{ChannelID: "team", MembersOnly: true, Rev: 1, CreatedBy: "boss", CreatedAt: b.clock.now().UTC()}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Error(diff)
	}
	if got := b.members("team"); !slices.Equal(got, []string{"auth0|42", "bob", "boss"}) {
		t.Errorf("members: %v", got)
	}
	if diff := cmp.Diff([]Change{{ChannelID: "team"}}, b.notified); diff != "" {
		t.Errorf("nodes were told: %s", diff)
	}
	for _, again := range []bool{true, false} {
		_, _, err = b.svc.Create(as(t, boss), CreateRequest{ChannelID: "team", MembersOnly: again, UserIDs: []string{"eve"}})
		check(t, "over an existing one", err, fault.ChannelExists)
	}
	if got := b.members("team"); len(got) != 3 || len(b.notified) != 1 {
		t.Errorf("a refused create left %v and told %v", got, b.notified)
	}
	if _, _, err := b.svc.Create(as(t, boss), CreateRequest{ChannelID: "hall"}); err != nil || len(b.notified) != 1 {
		t.Errorf("an open one: %v, %v", err, b.notified)
	}
	_, _, err = b.svc.Create(t.Context(), CreateRequest{ChannelID: "team"})
	check(t, "without a token", err, fault.TokenInvalid)
	b.store.script(nil, func(context.Context, string) error { return errors.New("reply lost") })
	_, _, err = b.svc.Create(as(t, boss), CreateRequest{ChannelID: "lost"})
	check(t, "with the reply lost", err, fault.OutcomeUnknown)
}

func TestAddMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	watcher := can("wim", "*", ident.Subscribe)
	for _, tc := range []struct {
		name    string
		p       *ident.Principal
		channel string
		users   []string
		want    fault.Reason
	}{
		{"who manages adds others", boss, "closed", []string{"u2", "u1", "u2"}, ""},
		{"who manages adds to nothing", boss, "none", []string{"u1"}, fault.ChannelNotFound},
		{"who subscribes joins an open one", watcher, "open", []string{"wim", "wim"}, ""},
		{"who subscribes adds others", watcher, "open", []string{"wim", "u1"}, fault.CapabilityMissing},
		{"who subscribes adds another", watcher, "open", []string{"u1"}, fault.CapabilityMissing},
		{"a stranger joins a closed one", watcher, "closed", []string{"wim"}, fault.NotMember},
		{"a member joins a closed one", ada, "closed", []string{"ada"}, ""},
		{"a member adds to a closed one", ada, "closed", []string{"eve"}, fault.CapabilityMissing},
		{"who subscribes joins nothing", watcher, "none", []string{"wim"}, fault.ChannelNotFound},
		{"who may do something else joins", can("eve", "*", ident.Send, ident.History), "open", []string{"eve"}, fault.CapabilityMissing},
		{"another channel's manager, existing", can("eve", "x*", ident.Manage), "closed", []string{"u1"}, fault.CapabilityMissing},
		{"another channel's manager, missing", can("eve", "x*", ident.Manage), "none", []string{"u1"}, fault.CapabilityMissing},
	} {
		check(t, tc.name, b.svc.AddMembers(as(t, tc.p), tc.channel, tc.users), tc.want)
	}
	if got := b.members("closed"); !slices.Equal(got, []string{"ada", "u1", "u2"}) {
		t.Errorf("closed has %v", got)
	}
	if got := b.members("open"); !slices.Equal(got, []string{"ada", "wim"}) {
		t.Errorf("open has %v", got)
	}
	check(t, "without a token", b.svc.AddMembers(t.Context(), "open", []string{"a"}), fault.TokenInvalid)
}

func TestRemoveMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 7 {
		b.log.send("closed", "x")
	}
	if err := b.svc.AddMembers(as(t, boss), "closed", []string{"bob", "eve"}); err != nil {
		t.Fatal(err)
	}
	nobody := can("bob", "elsewhere", ident.Send)
	check(t, "others", b.svc.RemoveMembers(as(t, ada), "closed", []string{"ada", "bob"}), fault.CapabilityMissing)
	check(t, "another of a channel that is not there", b.svc.RemoveMembers(as(t, ada), "none", []string{"bob"}), fault.CapabilityMissing)
	check(t, "oneself of a channel that is not there", b.svc.RemoveMembers(as(t, nobody), "none", []string{"bob"}), "")
	check(t, "by who manages, of none", b.svc.RemoveMembers(as(t, boss), "none", []string{"bob"}), fault.ChannelNotFound)
	if len(b.notified) != 0 {
		t.Errorf("nodes were told of nothing: %v", b.notified)
	}
	for _, p := range []*ident.Principal{bob, can("eve", "*", ident.Send)} {
		if _, err := b.access.ForRead(t.Context(), p, ident.History, "closed", 0); err != nil {
			t.Fatal(err) // the result is cached
		}
	}
	check(t, "oneself", b.svc.RemoveMembers(as(t, nobody), "closed", []string{"bob", "bob"}), "")
	check(t, "by who manages", b.svc.RemoveMembers(as(t, boss), "closed", []string{"eve", "stranger"}), "")
	for _, p := range []*ident.Principal{bob, can("eve", "*", ident.Send)} {
		_, err := b.access.ForRead(t.Context(), p, ident.History, "closed", 0)
		check(t, "on this node "+p.Subject, err, fault.NotMember)
	}
	if got := b.members("closed"); !slices.Equal(got, []string{"ada"}) {
		t.Errorf("left: %v", got)
	}
	if left := b.store.left[membership{"closed", "eve"}]; left != 7 {
		t.Errorf("they left at %d, want the log's head", left)
	}
	want := []Change{{"closed", []string{"bob"}}, {"closed", []string{"eve", "stranger"}}}
	if diff := cmp.Diff(want, b.notified); diff != "" {
		t.Error(diff)
	}
	b.log.err = fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
	check(t, "without the log's head", b.svc.RemoveMembers(as(t, boss), "closed", []string{"ada"}), fault.StoreUnavailable)
	if got := b.members("closed"); len(got) != 1 {
		t.Errorf("removed without a place: %v", got)
	}
}

func TestMarkRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 10 {
		b.log.send("open", "x")
		b.log.send("closed", "x")
		b.log.send("unknown", "x")
	}
	b.log.logs["open"][4].Count = 3 // as if there were edits before it
	for _, tc := range []struct {
		p       *ident.Principal
		channel string
		seq     int64
		want    Cursor
		unread  int64
		reason  fault.Reason
	}{
		{bob, "open", 5, Cursor{5, 3}, 7, ""},
		{bob, "open", 4, Cursor{5, 3}, 7, ""},
		{bob, "open", 10, Cursor{10, 10}, 0, ""},
		{bob, "open", 11, Cursor{}, 0, fault.PositionOutOfRange},
		{bob, "none", 1, Cursor{}, 0, fault.PositionOutOfRange},
		{ada, "closed", 2, Cursor{2, 2}, 8, ""},
		{bob, "closed", 2, Cursor{}, 0, fault.NotMember},
		{bob, "closed", 99, Cursor{}, 0, fault.NotMember}, // a stranger does not learn where the log ends
		{boss, "closed", 2, Cursor{}, 0, fault.NotMember},
		{bob, "unknown", 10, Cursor{10, 10}, 0, ""},
	} {
		c, unread, err := b.svc.MarkRead(as(t, tc.p), tc.channel, tc.seq)
		check(t, fmt.Sprint(tc.p.Subject, tc.channel, tc.seq), err, tc.reason)
		if c != tc.want || unread != tc.unread {
			t.Errorf("%s marks %s %d: %+v, %d unread; want %+v, %d", tc.p.Subject, tc.channel, tc.seq, c, unread, tc.want, tc.unread)
		}
		if e, ok := fault.As(err); ok && e.Reason == fault.PositionOutOfRange && (e.Field != "seq" || e.Kind != fault.OutOfRange) {
			t.Errorf("the fault is %+v", e)
		}
	}
	_, _, err := b.svc.MarkRead(as(t, bob), "open", 11)
	if e, ok := fault.As(err); !ok || e.Limit != 10 {
		t.Errorf("the limit is not the head: %+v", e)
	}
	if got := b.members("open"); !slices.Contains(got, "bob") {
		t.Errorf("who marked something in an open channel is no member of %v", got)
	}
}

func TestTyping(t *testing.T) {
	t.Parallel()
	b := setup(t)
	typing := func(p *ident.Principal, channel string, want fault.Reason) {
		t.Helper()
		check(t, p.Subject+" in "+channel, b.svc.Typing(as(t, p), channel), want)
	}
	typing(bob, "open", "")
	typing(bob, "open", "")
	typing(ada, "open", "")
	typing(ada, "closed", "")
	typing(bob, "closed", fault.NotMember)
	b.clock.pass(999 * time.Millisecond)
	typing(bob, "open", "")
	b.clock.pass(time.Millisecond)
	typing(bob, "open", "")
	typing(bob, "none", "")
	want := []string{"open bob", "open ada", "closed ada", "open bob", "none bob"}
	if diff := cmp.Diff(want, b.typed); diff != "" {
		t.Error(diff)
	}
	if _, ok := b.store.rows["none"]; ok {
		t.Error("typing made a channel")
	}
	b.clock.pass(time.Second)
	b.svc.typing.take(membership{"a", "b"}, b.clock.now())
	if n := len(b.svc.typing.taken); n != 1 {
		t.Errorf("%d are remembered, want what is of the last second", n)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all []string
	for i := range 250 {
		all = append(all, fmt.Sprintf("u%03d", i))
	}
	if err := b.svc.AddMembers(as(t, boss), "closed", all); err != nil {
		t.Fatal(err)
	}
	all = append([]string{"ada"}, all...)
	for _, size := range []int{0, 1, 250, 251, 1000} {
		var got []string
		pages, token := 0, ""
		for {
			p, err := b.svc.Members(as(t, ada), "closed", size, token)
			if err != nil {
				t.Fatal(err)
			}
			if want := size; want > 0 && p.NextPageToken != "" && len(p.Members) != want {
				t.Fatalf("a page of %d, want %d", len(p.Members), want)
			}
			for _, m := range p.Members {
				got = append(got, m.UserID)
			}
			pages++
			if token = p.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("with pages of %d: %d members, want %d", size, len(got), len(all))
		}
		if size == 0 && pages != 3 || size == 251 && pages != 1 {
			t.Errorf("%d pages of %d", pages, size)
		}
	}
	p, err := b.svc.Members(as(t, ada), "closed", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := b.svc.UserChannels(as(t, ada), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		p              *ident.Principal
		channel, token string
		want           fault.Reason
	}{
		"a stranger":         {bob, "closed", "", fault.NotMember},
		"who manages":        {boss, "closed", "", ""},
		"of no channel":      {bob, "none", "", ""},
		"garbage":            {ada, "closed", "x", fault.PageTokenInvalid},
		"another's token":    {boss, "closed", p.NextPageToken, fault.PageTokenForeign},
		"another channel's":  {ada, "open", p.NextPageToken, fault.PageTokenInvalid},
		"another call's":     {ada, "closed", mine.NextPageToken, fault.PageTokenInvalid},
		"another of its own": {ada, "closed", p.NextPageToken, ""},
	} {
		_, err := b.svc.Members(as(t, tc.p), tc.channel, 1, tc.token)
		check(t, name, err, tc.want)
	}
}
