package channel

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// byRole returns a principal whose token allows everything in all channels of which the subject is
// a member.
func byRole(subject string) *ident.Principal {
	return &ident.Principal{Subject: subject, Members: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}}}
}

// setupRoles creates the open channel `plaza` and the members-only channel `club`, both with the
// owner olga, the moderator mo, the member ada and the follower flo. The channel `none` does not
// exist.
func setupRoles(t *testing.T, cfg AccessConfig) (*Service, *fakeStore) {
	t.Helper()
	store := newFakeStore()
	cfg.Store = store
	svc := NewService(ServiceConfig{Store: store, Access: NewAccess(cfg), Log: &fakeLog{}, Secret: []byte("s")})
	for _, row := range []Row{{ChannelID: "club", MembersOnly: true, CreatedBy: "olga"}, {ChannelID: "plaza", CreatedBy: "olga"}} {
		if _, err := store.Create(t.Context(), row, []string{"olga", "mo", "ada", "max"}); err != nil {
			t.Fatal(err)
		}
		if err := store.SetRole(t.Context(), row.ChannelID, "mo", Moderator, row.CreatedAt); err != nil {
			t.Fatal(err)
		}
		if err := store.Advance(t.Context(), []Advance{{ChannelID: row.ChannelID, Senders: map[string]Cursor{"flo": {Seq: 1}}}}, row.CreatedAt); err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		store.rows[row.ChannelID] = row
		store.mu.Unlock()
	}
	return svc, store
}

// reasonOf returns the reason of a fault, and "" for no error.
func reasonOf(err error) fault.Reason {
	if f, ok := fault.As(err); ok {
		return f.Reason
	}
	return ""
}

// A capability on the subject's own channels allows what the role does, in open channels and
// members-only ones. Followers and strangers get the same answer as about a channel that does not
// exist.
func TestRightsByRole(t *testing.T) {
	t.Parallel()
	const none, low, stranger = fault.Reason(""), fault.CapabilityMissing, fault.NotMember
	type want struct{ olga, mo, ada, others fault.Reason }
	for name, tc := range map[string]struct {
		call func(ctx context.Context, s *Service, p *ident.Principal, id string) error
		want
	}{
		"send": {func(ctx context.Context, s *Service, p *ident.Principal, id string) error {
			_, err := s.cfg.Access.ForSend(ctx, p, id, 0)
			return err
		}, want{none, none, none, stranger}},
		"read": {func(ctx context.Context, s *Service, p *ident.Principal, id string) error {
			_, err := s.cfg.Access.ForRead(ctx, p, ident.History, id, 0)
			return err
		}, want{none, none, none, stranger}},
		"subscribe": {func(ctx context.Context, s *Service, p *ident.Principal, id string) error {
			return s.cfg.Access.ForSubscribe(ctx, p, []string{id})
		}, want{none, none, none, stranger}},
		"mark read": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			_, _, err := s.MarkRead(ctx, id, 0)
			return err
		}, want{none, none, none, stranger}},
		"type": {func(ctx context.Context, s *Service, p *ident.Principal, id string) error {
			_, err := s.cfg.Access.ForRead(ctx, p, ident.Send, id, 0)
			return err
		}, want{none, none, none, stranger}},
		"add": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			return s.AddMembers(ctx, id, []string{"new"})
		}, want{none, none, low, stranger}},
		"add oneself": {func(ctx context.Context, s *Service, p *ident.Principal, id string) error {
			return s.AddMembers(ctx, id, []string{p.Subject})
		}, want{none, none, low, stranger}},
		"remove a member": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			return s.RemoveMembers(ctx, id, []string{"max", "nobody"})
		}, want{none, none, low, stranger}},
		"remove the owner and a member": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			return s.RemoveMembers(ctx, id, []string{"max", "olga"})
		}, want{none, low, low, stranger}},
		"give a role": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			return s.UpdateMember(ctx, id, "ada", Owner)
		}, want{none, low, low, stranger}},
		"change settings": {func(ctx context.Context, s *Service, _ *ident.Principal, id string) error {
			_, err := s.Update(ctx, UpdateRequest{ChannelID: id, Retention: &Retention{MaxMessages: 9}})
			return err
		}, want{none, low, low, stranger}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for user, want := range map[string]fault.Reason{
				"olga": tc.want.olga, "mo": tc.want.mo, "ada": tc.want.ada, "flo": tc.want.others, "eve": tc.want.others,
			} {
				for _, id := range []string{"club", "plaza", "none"} {
					if id == "none" {
						want = stranger
					}
					svc, store := setupRoles(t, AccessConfig{})
					p := byRole(user)
					if got := reasonOf(tc.call(ident.NewContext(t.Context(), p), svc, p, id)); got != want {
						t.Errorf("%s in %s: %q, want %q", user, id, got, want)
					}
					if _, ok := store.rows["none"]; ok {
						t.Errorf("%s has created a channel", user)
					}
				}
			}
		})
	}
}

func TestRecallByRole(t *testing.T) {
	t.Parallel()
	svc, _ := setupRoles(t, AccessConfig{})
	send := &ident.Principal{Subject: "eve", Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send}}}}
	moderator := &ident.Principal{Subject: "eve", Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Moderate}}}}
	for name, tc := range map[string]struct {
		p      *ident.Principal
		id     string
		any    bool
		reason fault.Reason
	}{
		"owner":                     {byRole("olga"), "club", true, ""},
		"moderator":                 {byRole("mo"), "plaza", true, ""},
		"member":                    {byRole("ada"), "plaza", false, ""},
		"follower":                  {byRole("flo"), "plaza", false, fault.NotMember},
		"stranger":                  {byRole("eve"), "plaza", false, fault.NotMember},
		"no channel":                {byRole("eve"), "none", false, fault.NotMember},
		"any sender by channel":     {moderator, "plaza", true, ""},
		"any sender, not a member":  {moderator, "club", false, fault.NotMember},
		"own messages by channel":   {send, "plaza", false, ""},
		"own messages, not member":  {send, "club", false, fault.NotMember},
		"own messages, no channel":  {send, "none", false, ""},
		"a role without moderating": {&ident.Principal{Subject: "mo", Members: send.Channels}, "club", false, ""},
	} {
		anySender, _, err := svc.cfg.Access.ForRecall(t.Context(), tc.p, tc.id, 0)
		if reasonOf(err) != tc.reason || anySender != tc.any && err == nil {
			t.Errorf("%s: %t, %v", name, anySender, err)
		}
	}
}

// The creator of a channel is its owner, needs no role for it, and `manage` includes `create`.
func TestCreateByMembership(t *testing.T) {
	t.Parallel()
	svc, store := setupRoles(t, AccessConfig{})
	eve := &ident.Principal{Subject: "eve", Members: []ident.Capability{{Pattern: "dm_*", Actions: []ident.Action{ident.Manage}}}}
	if !eve.Covers(ident.Create, "dm_eve") || eve.Covers(ident.Create, "club") || byRole("eve").Covers(ident.SendAs, "club") {
		t.Error("what the token allows is wrong")
	}
	if _, _, err := svc.Create(ident.NewContext(t.Context(), eve), CreateRequest{ChannelID: "dm_eve", UserIDs: []string{"bob"}}); err != nil {
		t.Fatal(err)
	}
	members, err := store.MembersIn(t.Context(), "dm_eve", []string{"eve", "bob"})
	if err != nil || members["eve"].Role != Owner || members["bob"].Role != RoleMember {
		t.Errorf("members %v, %v", members, err)
	}
}

// A follower of a channel is none of its members: it is not in the list of channels if the channel
// is members-only, or if the token is for members.
func TestFollowersInLists(t *testing.T) {
	t.Parallel()
	svc, _ := setupRoles(t, AccessConfig{})
	for name, tc := range map[string]struct {
		p    *ident.Principal
		want []string
	}{
		"a member by membership":   {byRole("ada"), []string{"club", "plaza"}},
		"a follower by membership": {byRole("flo"), nil},
		"a follower by channel":    {can("flo", "*", ident.History), []string{"plaza"}},
	} {
		page, err := svc.UserChannels(ident.NewContext(t.Context(), tc.p), 0, "")
		var got []string
		for i := range page.Channels {
			got = append(got, page.Channels[i].Row.ChannelID)
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tc.want)
		}
	}
	if strangers, err := svc.cfg.Access.Strangers(t.Context(), "ada", []string{"mo", "flo"}); err != nil || !slices.Equal(strangers, []string{"flo"}) {
		t.Errorf("strangers %v, %v", strangers, err)
	}
}

// With RequireChannel only its members can tell a members-only channel from a missing one.
func TestRequireChannel(t *testing.T) {
	t.Parallel()
	svc, store := setupRoles(t, AccessConfig{RequireChannel: true})
	access, all := svc.cfg.Access, []ident.Action{ident.Send, ident.History, ident.Subscribe}
	for name, ask := range map[string]func(p *ident.Principal, id string) error{
		"send": func(p *ident.Principal, id string) error {
			_, err := access.ForSend(t.Context(), p, id, 0)
			return err
		},
		"read": func(p *ident.Principal, id string) error {
			_, err := access.ForRead(t.Context(), p, ident.History, id, 0)
			return err
		},
		"subscribe": func(p *ident.Principal, id string) error { return access.ForSubscribe(t.Context(), p, []string{id}) },
	} {
		for _, tc := range []struct {
			p       *ident.Principal
			channel string
			want    fault.Reason
		}{
			{can("eve", "*", all...), "none", fault.ChannelNotFound},
			{can("eve", "*", all...), "club", fault.ChannelNotFound},
			{can("flo", "*", all...), "club", fault.ChannelNotFound},
			{can("eve", "*", all...), "plaza", ""},
			{can("ada", "*", all...), "club", ""},
			{boss, "none", fault.ChannelNotFound},
			{boss, "club", ""},
			{byRole("eve"), "none", fault.NotMember},
			{byRole("eve"), "club", fault.NotMember},
			{byRole("eve"), "plaza", fault.NotMember},
		} {
			if got := reasonOf(ask(tc.p, tc.channel)); got != tc.want {
				t.Errorf("%s %s by %s: %q, want %q", name, tc.channel, tc.p.Subject, got, tc.want)
			}
		}
	}
	missing, ok := fault.As(access.ForSubscribe(t.Context(), can("eve", "*", all...), []string{"plaza", "club", "none", "club"}))
	if !ok || !slices.Equal(positions(missing), []string{"club", "none"}) || missing.Kind != fault.NotFound {
		t.Errorf("refused %+v", missing)
	}
	if _, ok := store.rows["none"]; ok {
		t.Error("a channel was created")
	}
}

// A membership, and the role in it, that was read before the channel was closed is not used for an
// entry of after that, although the node was not notified and the membership is recent.
func TestMembershipsOfEarlierRevisionsAreReadAgain(t *testing.T) {
	t.Parallel()
	svc, store := setupRoles(t, AccessConfig{MaxAge: time.Hour})
	access, of := svc.cfg.Access, []string{"ada", "mo", "olga"}
	recall := can("mo", "plaza", ident.Send)
	recall.Members = []ident.Capability{{Pattern: "plaza", Actions: []ident.Action{ident.Moderate}}}
	readers := func(byMembership bool, atLeast int64) []string {
		t.Helper()
		got, rev, err := access.Readers(t.Context(), "plaza", of, byMembership, atLeast)
		if err != nil || rev != atLeast {
			t.Fatalf("at revision %d, %v", rev, err)
		}
		maps.DeleteFunc(got, func(_ string, may bool) bool { return !may })
		return slices.Sorted(maps.Keys(got))
	}
	if got := readers(true, 0); !slices.Equal(got, of) {
		t.Fatalf("readers before: %v", got)
	}
	if anySender, _, err := access.ForRecall(t.Context(), recall, "plaza", 0); !anySender || err != nil {
		t.Fatalf("a moderator: %t, %v", anySender, err)
	}
	if err := store.RemoveMembers(t.Context(), "plaza", []string{"ada"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := store.SetRole(t.Context(), "plaza", "mo", RoleMember, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := readers(true, 0); !slices.Equal(got, of) {
		t.Fatalf("the memberships are not cached: %v", got)
	}
	if _, err := store.SetSettings(t.Context(), "plaza", 0, Settings{MembersOnly: true}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, byMembership := range []bool{true, false} {
		if got := readers(byMembership, 1); !slices.Equal(got, []string{"mo", "olga"}) {
			t.Errorf("readers after: %v", got)
		}
	}
	for _, p := range []*ident.Principal{byRole("ada"), can("ada", "*", ident.Send, ident.History)} {
		if _, err := access.ForSend(t.Context(), p, "plaza", 1); reasonOf(err) != fault.NotMember {
			t.Errorf("a send: %v", err)
		}
		if _, err := access.ForRead(t.Context(), p, ident.History, "plaza", 1); reasonOf(err) != fault.NotMember {
			t.Errorf("a read: %v", err)
		}
	}
	if anySender, rev, err := access.ForRecall(t.Context(), recall, "plaza", 1); anySender || rev != 1 || err != nil {
		t.Errorf("no moderator any more: %t, %d, %v", anySender, rev, err)
	}
	calls := store.called("MembersIn")
	if readers(true, 1); store.called("MembersIn") != calls+1 { // for ada
		t.Errorf("%d calls for memberships of the current revision", store.called("MembersIn")-calls)
	}
}
