package mongostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/store/storetest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// nodes are two nodes over one store, each with its own client.
type nodes struct {
	*mongostore.Store
	other *mongostore.Store
}

// Close closes both nodes.
func (n nodes) Close(ctx context.Context) error {
	return errors.Join(n.Store.Close(ctx), n.other.Close(ctx))
}

func twoNodes(uri string) storetest.Factory {
	return func(t *testing.T) func() message.Store {
		cfg := mongostore.Config{URI: uri, Database: testkit.MongoDatabase(t)}
		return func() message.Store { return nodes{open(t, cfg), open(t, cfg)} }
	}
}

// anyNode is a store of channels that sends each call to one of two nodes, chosen at random.
type anyNode [2]storetest.ChannelStore

func channelsOfAny(s message.Store) storetest.ChannelStore {
	n := s.(nodes)
	return anyNode{n.Store.Channels(), n.other.Channels()}
}

func (n anyNode) one() storetest.ChannelStore { return n[rand.IntN(2)] }

func (n anyNode) Expire() {
	for _, c := range n {
		c.(*mongostore.Channels).Expire()
	}
}

func (n anyNode) Ensure(ctx context.Context, id string, now time.Time) (channel.Row, error) {
	return n.one().Ensure(ctx, id, now)
}

func (n anyNode) Create(ctx context.Context, row channel.Row, userIDs []string) (channel.Row, error) {
	return n.one().Create(ctx, row, userIDs)
}

func (n anyNode) Rows(ctx context.Context, ids []string) (map[string]channel.Row, error) {
	return n.one().Rows(ctx, ids)
}

func (n anyNode) AddMembers(ctx context.Context, id string, userIDs []string, now time.Time) error {
	return n.one().AddMembers(ctx, id, userIDs, now)
}

func (n anyNode) RemoveMembers(ctx context.Context, id string, userIDs []string, left int64) error {
	return n.one().RemoveMembers(ctx, id, userIDs, left)
}

func (n anyNode) Members(ctx context.Context, id, after string, limit int) ([]channel.Member, error) {
	return n.one().Members(ctx, id, after, limit)
}

func (n anyNode) CountMembers(ctx context.Context, id string) (int, error) {
	return n.one().CountMembers(ctx, id)
}

func (n anyNode) Memberships(ctx context.Context, userID, after string, limit int) ([]channel.Member, error) {
	return n.one().Memberships(ctx, userID, after, limit)
}

func (n anyNode) MembersOf(ctx context.Context, userID string, ids []string) (map[string]channel.Member, error) {
	return n.one().MembersOf(ctx, userID, ids)
}

func (n anyNode) MembersIn(ctx context.Context, id string, userIDs []string) (map[string]channel.Member, error) {
	return n.one().MembersIn(ctx, id, userIDs)
}

func (n anyNode) SetRole(ctx context.Context, id, userID string, role channel.Role, now time.Time) error {
	return n.one().SetRole(ctx, id, userID, role, now)
}

func (n anyNode) MarkRead(ctx context.Context, id, userID string, to channel.Cursor, join bool, now time.Time) (channel.Cursor, bool, error) {
	return n.one().MarkRead(ctx, id, userID, to, join, now)
}

func (n anyNode) Sessions(ctx context.Context, ownerID string, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	return n.one().Sessions(ctx, ownerID, after, limit)
}

func (n anyNode) EverySession(ctx context.Context, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	return n.one().EverySession(ctx, after, limit)
}

func (n anyNode) Owners(ctx context.Context, channelIDs []string) (map[string]channel.Member, error) {
	return n.one().Owners(ctx, channelIDs)
}

func (n anyNode) SetTitle(ctx context.Context, channelID, title string) error {
	return n.one().SetTitle(ctx, channelID, title)
}

func (n anyNode) Advance(ctx context.Context, moves []channel.Advance, now time.Time) error {
	return n.one().Advance(ctx, moves, now)
}

func (n anyNode) Changes(ctx context.Context, after channel.Stamp) ([]channel.Change, channel.Stamp, error) {
	return n.one().Changes(ctx, after)
}

func (n anyNode) SetSettings(ctx context.Context, id string, rev int64, set channel.Settings, now time.Time) (channel.Row, error) {
	return n.one().SetSettings(ctx, id, rev, set, now)
}

func (n anyNode) Delete(ctx context.Context, id string, rev int64, now time.Time) (channel.Row, error) {
	return n.one().Delete(ctx, id, rev, now)
}

func (n anyNode) DropMembers(ctx context.Context, id string, limit int) (int, error) {
	return n.one().DropMembers(ctx, id, limit)
}

func (n anyNode) FinishDelete(ctx context.Context, id string) error {
	return n.one().FinishDelete(ctx, id)
}

func (n anyNode) Forget(ctx context.Context, userID string, limit int) (int, error) {
	return n.one().Forget(ctx, userID, limit)
}

func (n anyNode) RowsAfter(ctx context.Context, after string, limit int) ([]channel.Row, error) {
	return n.one().RowsAfter(ctx, after, limit)
}

func (n anyNode) Due(ctx context.Context, shard int, until time.Time, limit int) ([]channel.Row, error) {
	return n.one().Due(ctx, shard, until, limit)
}

func (n anyNode) MoveBoundary(ctx context.Context, id string, rev int64, to message.Boundary, due time.Time) (bool, error) {
	return n.one().MoveBoundary(ctx, id, rev, to, due)
}

func (n anyNode) SetTrim(ctx context.Context, read *channel.Row, trim channel.Trim) error {
	return n.one().SetTrim(ctx, read, trim)
}

func TestErasures(t *testing.T) {
	t.Parallel()
	storetest.RunErasures(t, suite(testkit.MongoURI(t)), func(s message.Store) erasure.Store { return s.(*mongostore.Store).Erasures() })
}

func TestRevocations(t *testing.T) {
	t.Parallel()
	storetest.RunRevocations(t, suite(testkit.MongoURI(t)), func(s message.Store) revocation.Store {
		return s.(*mongostore.Store).Revocations()
	}, true)
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	storetest.RunAPIKeys(t, suite(testkit.MongoURI(t)), func(s message.Store) apikey.Store { return s.(*mongostore.Store).APIKeys() })
}

func TestChannels(t *testing.T) {
	t.Parallel()
	storetest.RunChannels(t, twoNodes(testkit.MongoURI(t)), channelsOfAny)
}

// aboutChannels reports whether a request to MongoDB is one of Channels.
func aboutChannels(request []byte) bool {
	return bytes.Contains(request, []byte("\x00channels\x00")) || bytes.Contains(request, []byte("\x00members\x00"))
}

// TestChannelsThroughLostReplies checks that Channels keeps its contract while some of MongoDB's
// replies are lost: a call without a reply is slow, but takes effect once.
func TestChannelsThroughLostReplies(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	p.LoseReplies(25, aboutChannels)
	t.Cleanup(func() {
		if t.Logf("%d replies lost", p.Lost()); p.Lost() < 20 {
			t.Errorf("only %d replies were lost", p.Lost())
		}
	})
	uri := "mongodb://" + p.Addr() + "/?directConnection=true"
	storetest.RunChannels(t, func(t *testing.T) func() message.Store {
		cfg := mongostore.Config{URI: uri, Database: testkit.MongoDatabase(t), Timeout: 30 * time.Second}
		return func() (s message.Store) {
			// The driver does not retry the creation of indexes.
			testkit.Eventually(t, time.Minute, func() (err error) {
				s, err = mongostore.Open(t.Context(), cfg)
				return err
			})
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			return s
		}
	}, func(s message.Store) storetest.ChannelStore { return s.(*mongostore.Store).Channels() })
}

// TestForgetCountsThroughLostReplies checks that Forget counts what it removed although the reply
// to the removal was lost. If it did not, an erasure would end too early.
func TestForgetCountsThroughLostReplies(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	cfg := mongostore.Config{URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: testkit.MongoDatabase(t), Timeout: 30 * time.Second}
	c := open(t, cfg).Channels()
	const clubs = 6
	for i := range clubs {
		row := channel.Row{ChannelID: fmt.Sprint("club", i), CreatedBy: "ann", CreatedAt: time.UnixMilli(1)}
		if _, err := c.Create(t.Context(), row, []string{"ann", "bob"}); err != nil {
			t.Fatal(err)
		}
		if err := c.RemoveMembers(t.Context(), row.ChannelID, []string{"ann"}, 1); err != nil {
			t.Fatal(err)
		}
	}
	p.LoseReplies(3, aboutChannels)
	total := 0
	for n := 1; n > 0; total += n {
		var err error
		if n, err = c.Forget(t.Context(), "ann", 1); err != nil {
			t.Fatal(err)
		}
	}
	if total != 2*clubs { // a record and a creator in each
		t.Errorf("%d were forgotten", total)
	}
	if p.Lost() < 4 {
		t.Errorf("only %d replies were lost", p.Lost())
	}
}

// TestChannelOfADeadCreator checks that a channel has all its members even if its creator died
// before it stored their documents, regardless of which call comes next.
func TestChannelOfADeadCreator(t *testing.T) {
	t.Parallel()
	s, _ := openFresh(t)
	c := s.Channels()
	ctx := t.Context()
	made, now := time.UnixMilli(1_700_000_000_000).UTC(), time.UnixMilli(1_700_000_000_500).UTC()
	users := []string{"$ann", "b.ob", "cem"}
	five := channel.Cursor{Seq: 5, Count: 5}
	for i, step := range []struct {
		name string
		do   func(id string) error
		// cursor is $ann's cursor. gone is true if she is no member afterwards.
		cursor channel.Cursor
		gone   bool
	}{
		{name: "nothing", do: func(string) error { return nil }},
		{name: "Ensure", do: func(id string) error { _, err := c.Ensure(ctx, id, now); return err }},
		{name: "AddMembers", do: func(id string) error { return c.AddMembers(ctx, id, users[:1], now) }},
		{name: "RemoveMembers", gone: true, do: func(id string) error { return c.RemoveMembers(ctx, id, users[:1], 3) }},
		{name: "MarkRead", cursor: five, do: func(id string) error {
			_, ok, err := c.MarkRead(ctx, id, users[0], five, false, now)
			if !ok {
				return fmt.Errorf("no member, %w", err)
			}
			return err
		}},
		{name: "Advance", cursor: five, do: func(id string) error {
			return c.Advance(ctx, []channel.Advance{{ChannelID: id, Senders: map[string]channel.Cursor{users[0]: five}}}, now)
		}},
	} {
		for _, read := range []string{"Members", "Memberships", "MembersOf"} {
			id := fmt.Sprintf("c%d-%s", i, read)
			row := channel.Row{ChannelID: id, MembersOnly: true, CreatedBy: "maker", CreatedAt: made}
			if err := c.CreateAndDie(ctx, row, users); err != nil {
				t.Fatal(err)
			}
			if err := step.do(id); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			check := func(when string) {
				var want []string
				for _, u := range users {
					if u != users[0] || !step.gone {
						m := channel.Member{ChannelID: id, UserID: u, Role: channel.RoleMember, JoinedAt: made}
						if u == users[0] {
							m.Cursor = step.cursor
						}
						want = append(want, fmt.Sprint(m))
					}
				}
				if d := cmp.Diff(want, membersBy(t, c, read, id, users)); d != "" {
					t.Fatalf("%s after %s, %s (-want +got):\n%s", read, step.name, when, d)
				}
			}
			check("by others")
			if err := c.FinishLate(ctx, row, users); err != nil {
				t.Fatal(err)
			}
			check("after the maker woke")
		}
	}
}

// membersBy returns the members of channel id as text. way names the method that it reads with:
// Members or, for each of users, Memberships or MembersOf.
func membersBy(t *testing.T, c *mongostore.Channels, way, id string, users []string) (found []string) {
	t.Helper()
	if way == "Members" {
		all, err := c.Members(t.Context(), id, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			found = append(found, fmt.Sprint(m))
		}
		return found
	}
	for _, u := range users {
		var of map[string]channel.Member
		var mine []channel.Member
		var err error
		if way == "MembersOf" {
			of, err = c.MembersOf(t.Context(), u, []string{id})
		} else {
			mine, err = c.Memberships(t.Context(), u, "", 1000)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mine {
			if m.ChannelID == id {
				found = append(found, fmt.Sprint(m))
			}
		}
		if m, ok := of[id]; ok {
			found = append(found, fmt.Sprint(m))
		}
	}
	return found
}

// TestChangesRepeatTheLastSeconds checks that Changes also returns changes of the seconds before
// the stamp, because a change may become visible after one with a higher time.
func TestChangesRepeatTheLastSeconds(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	c := s.Channels()
	_, place, err := c.Changes(t.Context(), channel.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	late := bson.D{
		{Key: "channel_id", Value: "room"},
		{Key: "user_id", Value: "ann"},
		{Key: "member", Value: false},
		{Key: "changed", Value: bson.Timestamp{T: place.Hi - 4, I: 1}},
	}
	db := testkit.MongoClient(t, cfg.URI).Database(cfg.Database)
	if _, err := db.Collection("members").InsertOne(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	changed, next, err := c.Changes(t.Context(), place)
	want := []channel.Change{{ChannelID: "room", UserIDs: []string{"ann"}}}
	if d := cmp.Diff(want, changed); err != nil || d != "" {
		t.Fatalf("%v (-want +got):\n%s", err, d)
	}
	if next.Hi < place.Hi {
		t.Errorf("the place went from %+v to %+v", place, next)
	}
}

func TestStoredEpochIsReadFromTheStore(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	epoch, err := open(t, cfg).NewEpoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := s.StoredEpoch(t.Context()); err != nil || stored != epoch || stored == s.Identity().Epoch {
		t.Errorf("stored epoch %s, %v, want %s; opened with %s", stored, err, epoch, s.Identity().Epoch)
	}
}

// TestCreateDuringFailover checks that Create succeeds if its insert is stored but answered with a
// change of primary: the repeated insert finds the document and recognizes it as its own.
func TestCreateDuringFailover(t *testing.T) {
	t.Parallel()
	const app = "maker"
	s := open(t, mongostore.Config{URI: ownURI(t, app), Database: testkit.MongoDatabase(t), Timeout: 30 * time.Second})
	lift := failCommand(t, app, bson.D{{Key: "times", Value: 1}}, bson.D{
		{Key: "failCommands", Value: bson.A{"insert"}},
		{Key: "errorLabels", Value: bson.A{}}, // so that the driver does not retry on its own
		{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 11602}, {Key: "errmsg", Value: "a primary steps down"}}},
	})
	row := channel.Row{ChannelID: "room", CreatedBy: "ann", CreatedAt: time.UnixMilli(1).UTC()}
	got, err := s.Channels().Create(t.Context(), row, []string{"ann"})
	lift()
	if err != nil || got != row {
		t.Error(got, err)
	}
	if got, err := s.Channels().Create(t.Context(), row, []string{"ann"}); !errors.Is(err, channel.ErrExists) || got != row {
		t.Errorf("create again: %+v, %v", got, err)
	}
}

// TestRepeatedCreateFinishesAnInterruptedOne checks that a repeated Create stores the members that
// the first one, interrupted, did not store, and does not restore members removed since.
func TestRepeatedCreateFinishesAnInterruptedOne(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	c, db := s.Channels(), testkit.MongoClient(t, cfg.URI).Database(cfg.Database)
	row := channel.Row{
		ChannelID: "club", MembersOnly: true, CreatedBy: "ann", CreatedAt: time.UnixMilli(1).UTC(), CreateKey: "key", CreateDigest: "digest",
	}
	users := []string{"ann", "bob", "cem"}
	if err := c.CreateAndDie(t.Context(), row, users); err != nil {
		t.Fatal(err)
	}
	_, err := db.Collection("members").InsertOne(t.Context(), bson.D{
		{Key: "channel_id", Value: "club"}, {Key: "user_id", Value: "bob"}, {Key: "member", Value: false}, {Key: "left", Value: int64(1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	again := row
	again.CreatedAt = time.UnixMilli(9).UTC()
	if got, err := c.Create(t.Context(), again, users); !errors.Is(err, channel.ErrExists) || got != row {
		t.Fatalf("create again: %+v, %v", got, err)
	}
	// Read the documents themselves: a read through Channels would store the members too.
	members, err := db.Collection("members").CountDocuments(t.Context(), bson.D{{Key: "member", Value: true}, {Key: "joined_at", Value: row.CreatedAt}})
	if err != nil || members != 2 {
		t.Errorf("%d members, %v", members, err)
	}
	joining, err := db.Collection("channels").CountDocuments(t.Context(), bson.D{{Key: "joining", Value: bson.D{{Key: "$exists", Value: true}}}})
	if err != nil || joining != 0 {
		t.Errorf("%d channels with users that are joining, %v", joining, err)
	}
	if bob, err := c.MembersOf(t.Context(), "bob", []string{"club"}); err != nil || len(bob) != 0 {
		t.Errorf("bob is a member again: %v, %v", bob, err)
	}
}

// TestRepeatedAddMembersIsAWrite checks that AddMembers writes even if the users are members. An
// update that changes nothing does not wait for a majority, so a former primary that was suspended
// may answer it from stale data.
func TestRepeatedAddMembersIsAWrite(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	c := s.Channels()
	members := testkit.MongoClient(t, cfg.URI).Database(cfg.Database).Collection("members")
	if _, err := c.Ensure(t.Context(), "room", time.UnixMilli(1)); err != nil {
		t.Fatal(err)
	}
	var last bson.Raw
	for range 3 {
		if err := c.AddMembers(t.Context(), "room", []string{"ann"}, time.UnixMilli(2)); err != nil {
			t.Fatal(err)
		}
		now, err := members.FindOne(t.Context(), bson.D{{Key: "user_id", Value: "ann"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(now, last) {
			t.Fatalf("nothing was written: %s", now)
		}
		last = now
	}
}
