package server_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

const (
	noChannel = parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND
	deleting  = parleyv1.ErrorReason_ERROR_REASON_CHANNEL_DELETING
)

// backendsOf returns a client of each node that manages all channels.
func backendsOf(nodes []*servertest.Server) []client {
	backends := make([]client, len(nodes))
	for i, n := range nodes {
		backends[i] = n.Client(n.Mint("backend", append(slices.Clone(user), ident.Manage)...))
	}
	return backends
}

// TestDeletedChannels deletes channels, open ones and members-only ones, with NATS and without it,
// while streams of strangers, members and backends are live on each node. All streams lose the
// channel, and no node accepts a send afterwards. The channel that is created under the id later
// has nothing of the old one.
func TestDeletedChannels(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	backends := backendsOf(nodes)
	for _, natsAway := range []bool{false, true} {
		var ids []string
		streams := make(map[string][]*stream)
		for i := range 4 {
			id, private := fmt.Sprintf("doomed-%d-%t", i, natsAway), i >= 2
			ids = append(ids, id)
			if err := callErr(backends[0].CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
				ChannelId: id, MembersOnly: private, Members: membersOf("ann", "bob"),
			})); err != nil {
				t.Fatal(err)
			}
			for k := range 3 {
				send(t, backends[k%2], id, fmt.Sprint("old ", k))
			}
			for k, n := range nodes {
				streams[id] = append(streams[id], subscribe(t, backends[k], live(id)), subscribe(t, n.Client(n.Mint("ann", user...)), live(id)),
					subscribe(t, asMember(n, "bob", "*", user...), live(id)))
				if !private {
					streams[id] = append(streams[id], subscribe(t, n.Client(n.Mint("stranger", user...)), live(id)))
				}
			}
			for _, s := range streams[id] {
				s.awaitState(id)
			}
		}
		if natsAway {
			nodes[0].NATS.Stop()
		}
		for i, id := range ids {
			if err := callErr(backends[i%2].DeleteChannel(t.Context(), &parleyv1.DeleteChannelRequest{ChannelId: id})); err != nil {
				t.Fatal(err)
			}
			// At once, on a node that may not know of the deletion.
			if err := callErr(backends[(i+1)%2].SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: id, Content: "late"})); err == nil {
				t.Errorf("a message was sent to the deleted channel %s", id)
			}
		}
		for _, id := range ids {
			for _, s := range streams[id] {
				awaitLost(t, s, id, 2*time.Second)
				wantDeleted(t, s, id)
			}
			for k, n := range nodes {
				for name, c := range map[string]client{"backend": backends[k], "ann": n.Client(n.Mint("ann", user...))} {
					wantReason(t, name+" of "+id, noChannel, useOf(t.Context(), t, c, id))
				}
			}
		}
		if natsAway {
			if reason, _ := reasonOf(callErr(backends[0].CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: ids[0]}))); reason != deleting {
				t.Errorf("CreateChannel while the entries are not published: %s", reason)
			}
			nodes[0].NATS.Start()
		}
		for i, id := range ids {
			again(t, backends[i%2], id)
			for _, s := range streams[id] {
				wantDeleted(t, s, id)
				s.cancel()
			}
		}
	}
}

// wantDeleted fails the test if a stream has received an entry of a channel, or lost it for another
// reason than its deletion.
func wantDeleted(t *testing.T, s *stream, id string) {
	t.Helper()
	if got := s.entries(id); len(got) > 0 {
		t.Errorf("a stream received %v", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.GetLost() != nil && e.GetLost().GetReason() != parleyv1.LostReason_LOST_REASON_DELETED {
			t.Errorf("a stream lost %s: %s", id, e.GetLost().GetReason())
		}
	}
}

// recreate waits until a deleted channel can be created again, and creates it.
func recreate(t *testing.T, c client, req *parleyv1.CreateChannelRequest) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		err := callErr(c.CreateChannel(t.Context(), req))
		if reason, _ := reasonOf(err); reason != deleting && err != nil {
			t.Error(err)
			return nil
		}
		return err
	})
}

// again waits until a deleted channel, of which the last message had seq 3, can be created again.
// It fails the test if the new channel has anything of the old one.
func again(t *testing.T, c client, id string) {
	t.Helper()
	recreate(t, c, &parleyv1.CreateChannelRequest{ChannelId: id, Members: membersOf("eve")})
	members, err := c.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: id})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(members.GetMembers()); got != 2 || members.GetMembers()[1].GetUserId() != "eve" {
		t.Errorf("the new channel has the members %v", members.GetMembers())
	}
	sent := send(t, c, id, "new")
	page, err := c.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: id})
	if err != nil {
		t.Fatal(err)
	}
	if got := page.GetMessages(); len(got) != 1 || got[0].GetContent() != "new" || sent.GetSeq() <= 4 {
		t.Errorf("the new channel has %v, and the message has seq %d", got, sent.GetSeq())
	}
	s := subscribe(t, c, from(id, 0))
	s.awaitGap(parleyv1.GapReason_GAP_REASON_HISTORY_GONE)
	testkit.Eventually(t, 20*time.Second, func() error {
		got := s.entries(id)
		if len(got) == 0 {
			return errors.New("the message has not come")
		}
		if got[0].GetSent().GetContent() != "new" {
			t.Fatalf("the new channel has the entries %v", got)
		}
		return nil
	})
	s.cancel()
}

// TestSendsRacingDeletions deletes channels while several clients send to them on both nodes, and
// creates them again. A send is stored before the deletion or refused: afterwards nothing of it can
// be read, and its seq is not used again.
func TestSendsRacingDeletions(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	backends := backendsOf(nodes)
	var races sync.WaitGroup
	for i := range 8 {
		races.Go(func() { raceDeletion(t, backends, fmt.Sprint("raced-", i), i) })
	}
	races.Wait()
}

// raceDeletion deletes a channel by one of the backends after a send was acknowledged, while all of
// them send.
func raceDeletion(t *testing.T, backends []client, id string, n int) {
	t.Helper()
	if err := callErr(backends[0].CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: id})); err != nil {
		t.Error(err)
		return
	}
	var mu sync.Mutex
	last := int64(0) // the highest seq that was acknowledged; guarded by mu
	acked := make(chan struct{}, 1)
	var senders sync.WaitGroup
	for i := range 3 * len(backends) {
		senders.Go(func() {
			for k := 0; ; k++ {
				resp, err := backends[i%len(backends)].SendMessage(t.Context(), &parleyv1.SendMessageRequest{
					ChannelId: id, Content: "old", ClientMsgId: fmt.Sprint(i, "-", k),
				})
				if err != nil {
					if reason, _ := reasonOf(err); reason != noChannel {
						t.Errorf("a send to %s: %v", id, err)
					}
					return
				}
				mu.Lock()
				last = max(last, resp.GetSeq())
				mu.Unlock()
				select {
				case acked <- struct{}{}:
				default:
				}
			}
		})
	}
	<-acked
	if err := callErr(backends[n%len(backends)].DeleteChannel(t.Context(), &parleyv1.DeleteChannelRequest{ChannelId: id})); err != nil {
		t.Error(err)
	}
	senders.Wait()
	recreate(t, backends[0], &parleyv1.CreateChannelRequest{ChannelId: id})
	fresh := send(t, backends[1], id, "new")
	if fresh.GetSeq() <= last {
		t.Errorf("%s: the new message has seq %d, and %d was acknowledged before", id, fresh.GetSeq(), last)
	}
	for _, c := range backends {
		page, err := c.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: id})
		if err != nil || len(page.GetMessages()) != 1 || page.GetMessages()[0].GetContent() != "new" {
			t.Errorf("%s holds %v, %v", id, page.GetMessages(), err)
		}
	}
}
