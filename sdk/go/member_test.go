package parley_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func memberIDs(t *testing.T, c *parley.Client, channel string) []string {
	t.Helper()
	var ids []string
	for m, err := range c.Members(testContext(t), channel) {
		if err != nil {
			t.Fatalf("members: %v", err)
		}
		ids = append(ids, m.GetUserId())
	}
	return ids
}

func TestMembers(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetPageSize(2)
	s.SetUser("ann's token", "ann")
	s.SetActions("ann's token", "send", "history", "subscribe")
	ctx, c := testContext(t), newClient(t, s.Addr())
	ann := newClient(t, s.Addr(), parley.WithToken("ann's token"))
	ch, err := c.CreateChannel(ctx, "secret", parley.MembersOnly(), parley.WithMembers("bob"), parley.WithMembers("carl", "bob"))
	if err != nil || !ch.GetMembersOnly() || ch.GetCreatedBy() != "tester" || ch.GetOldestSeq() != 1 || ch.GetEpoch() == "" {
		t.Fatalf("create: %v, %v", ch, err)
	}
	if _, err := c.CreateChannel(ctx, "secret"); !errors.Is(err, parley.ErrChannelExists) {
		t.Errorf("create again: %v", err)
	}
	for m, err := range c.Members(ctx, "secret") {
		want := parley.RoleMember
		if m.GetUserId() == "tester" {
			want = parley.RoleOwner
		}
		if err != nil || m.GetRole() != want {
			t.Errorf("member %v, %v", m, err)
		}
	}
	if _, err := ann.Send(ctx, "secret", "hello"); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("send as a stranger: %v", err)
	}
	for _, err := range ann.Members(ctx, "secret") {
		if !errors.Is(err, parley.ErrNotMember) {
			t.Errorf("members for a stranger: %v", err)
		}
	}
	if err := c.AddMembers(ctx, "secret", "ann", "bob"); err != nil {
		t.Fatalf("add: %v", err)
	}
	if got, want := memberIDs(t, c, "secret"), []string{"ann", "bob", "carl", "tester"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	if _, err := ann.Send(ctx, "secret", "hello"); err != nil {
		t.Errorf("send as a member: %v", err)
	}
	if err := c.RemoveMembers(ctx, "secret", "carl", "nobody"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if got, want := memberIDs(t, c, "secret"), []string{"ann", "bob", "tester"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	if err := c.AddMembers(ctx, "nowhere", "ann"); !errors.Is(err, parley.ErrChannelNotFound) {
		t.Errorf("add to no channel: %v", err)
	}
	for _, err := range []error{
		c.AddMembers(ctx, "secret", "\xff"), c.RemoveMembers(ctx, "\xff", "ann"), lastError(c.Members(ctx, "\xff")),
	} {
		if !errors.Is(err, parley.ErrInvalidField) {
			t.Errorf("broken text: %v", err)
		}
	}
}

func lastError[T any](seq func(yield func(T, error) bool)) error {
	var last error
	for _, err := range seq {
		last = err
	}
	return last
}

// TestManyMembersAreSplit adds and removes more users than fit into one request. A request whose
// answer is lost must be repeated, and an empty list must be left for the server to refuse.
func TestManyMembersAreSplit(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	if _, err := c.CreateChannel(ctx, "room"); err != nil {
		t.Fatalf("create: %v", err)
	}
	users := make([]string, 1100)
	for i := range users {
		users[i] = fmt.Sprintf("user-%04d", i)
	}
	s.FaultTimes(1, "AddMembers", parleytest.Fault{Drop: true, Applied: true})
	if err := c.AddMembers(ctx, "room", users...); err != nil {
		t.Fatalf("add: %v", err)
	}
	var sizes []int
	for _, r := range parleytest.RequestsOf[*parleyv1.AddMembersRequest](s) {
		sizes = append(sizes, len(r.GetMembers()))
	}
	if want := []int{500, 500, 500, 100}; !slices.Equal(sizes, want) {
		t.Errorf("requests of %v users, want %v", sizes, want)
	}
	if got := len(memberIDs(t, c, "room")); got != len(users)+1 {
		t.Errorf("%d members", got)
	}
	if err := c.RemoveMembers(ctx, "room", users...); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if got := memberIDs(t, c, "room"); !slices.Equal(got, []string{"tester"}) {
		t.Errorf("members %v", got)
	}
	for _, r := range parleytest.RequestsOf[*parleyv1.AddMembersRequest](s) {
		if role := r.GetMembers()[0].GetRole(); role != parley.RoleMember {
			t.Errorf("added with the role %v", role)
		}
	}
	if err := c.AddMembers(ctx, "room"); !errors.Is(err, parley.ErrInvalidField) ||
		len(parleytest.RequestsOf[*parleyv1.AddMembersRequest](s)) != 5 {
		t.Errorf("an empty list: %v, want the server's refusal", err)
	}
}

// TestCreateChannelRetriesKeepIdempotencyKey loses answers of CreateChannel, and repeats the call
// with its key as a program does after a restart. The channel must be created once, without an
// error.
func TestCreateChannelRetriesKeepIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	for name, fault := range map[string]parleytest.Fault{
		"lost":    {Drop: true, Applied: true},
		"unknown": {Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN), Applied: true},
		"refused": refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
	} {
		s.FaultTimes(2, "CreateChannel", fault)
		ch, err := c.CreateChannel(ctx, name, parley.MembersOnly(), parley.WithMembers("bob"))
		if err != nil || ch.GetChannelId() != name || !ch.GetMembersOnly() {
			t.Errorf("%s: %v, %v", name, ch, err)
		}
	}
	attempts := make(map[string][]string) // the keys of each channel
	for _, r := range parleytest.RequestsOf[*parleyv1.CreateChannelRequest](s) {
		attempts[r.GetChannelId()] = append(attempts[r.GetChannelId()], r.GetIdempotencyKey())
	}
	seen := make(map[string]bool)
	for name, keys := range attempts {
		if len(keys) != 3 || keys[0] == "" || len(slices.Compact(keys)) != 1 || seen[keys[0]] {
			t.Errorf("%s: attempts with the keys %q, want three with one of its own", name, keys)
		}
		seen[keys[0]] = true
	}
	if _, err := c.CreateChannel(ctx, "lost"); !errors.Is(err, parley.ErrChannelExists) {
		t.Errorf("another call: %v", err)
	}

	mine := parley.WithIdempotencyKey("my-key")
	for range 2 {
		if ch, err := c.CreateChannel(ctx, "room", mine, parley.WithMembers("bob", "ann")); err != nil || ch.GetChannelId() != "room" {
			t.Errorf("with a key of the caller: %v, %v", ch, err)
		}
	}
	if _, err := c.CreateChannel(ctx, "room", mine, parley.WithMembers("bob")); !errors.Is(err, parley.ErrIdempotencyKeyReused) {
		t.Errorf("the same key with other settings: %v", err)
	}
	s.SetUser("ann's token", "ann")
	ann := newClient(t, s.Addr(), parley.WithToken("ann's token"))
	if _, err := ann.CreateChannel(ctx, "room", mine); !errors.Is(err, parley.ErrChannelExists) {
		t.Errorf("the same key of another user: %v", err)
	}
}

func TestChannelsAndCursors(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetPageSize(2)
	ctx, c := testContext(t), newClient(t, s.Addr())
	for i := range 5 {
		post(s, fmt.Sprintf("other-%d", i), 2)
		if _, err := c.Send(ctx, fmt.Sprintf("mine-%d", i), "hello"); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
	post(s, "mine-3", 4)
	read, err := c.MarkRead(ctx, "mine-3", 3)
	if want := (parley.ReadCursor{Seq: 3, Unread: 2, Epoch: "epoch-1"}); err != nil || read != want {
		t.Errorf("mark read: %+v, %v; want %+v", read, err, want)
	}
	s.FaultTimes(2, "MarkRead", parleytest.Fault{Drop: true, Applied: true})
	if back, err := c.MarkRead(ctx, "mine-3", 2); err != nil || back != read {
		t.Errorf("mark read backwards: %+v, %v", back, err)
	}
	if _, err := c.MarkRead(ctx, "mine-3", 6); !errors.Is(err, parley.ErrPositionOutOfRange) {
		t.Errorf("mark read beyond the head: %v", err)
	}
	if _, err := c.MarkRead(ctx, "other-1", 1); err != nil {
		t.Errorf("mark read: %v", err)
	}
	s.FaultTimes(1, "ListChannels", refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE))
	var ids []string
	for mine, err := range c.Channels(ctx) {
		if err != nil {
			t.Fatalf("channels: %v", err)
		}
		id := mine.GetChannel().GetChannelId()
		ids = append(ids, id)
		if id == "mine-3" && (mine.GetReadSeq() != 3 || mine.GetUnread() != 2 || mine.GetChannel().GetHeadSeq() != 5 ||
			mine.GetLastMessage().GetSeq() != 5 || mine.GetChannel().GetEpoch() != "epoch-1" ||
			mine.GetChannel().GetOldestSeq() != 1 || mine.GetChannel().GetExpiredCount() != 0 || mine.GetChannel().GetEtag() == "") {
			t.Errorf("got %v", mine)
		}
	}
	if want := []string{"mine-0", "mine-1", "mine-2", "mine-3", "mine-4", "other-1"}; !slices.Equal(ids, want) {
		t.Errorf("channels %v, want %v", ids, want)
	}
	for _, err := range c.Channels(ctx) {
		if err != nil {
			t.Errorf("channels: %v", err)
		}
		break // Leaving early must not fail.
	}
	// History must request at least the head that Channels returned.
	for range c.History(ctx, "mine-3") {
		break
	}
	lists := parleytest.RequestsOf[*parleyv1.ListMessagesRequest](s)
	if got := lists[len(lists)-1].GetMinSeq(); got != 5 {
		t.Errorf("History asked for min_seq %d, want 5", got)
	}
}
