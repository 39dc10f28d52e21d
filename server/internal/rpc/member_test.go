package rpc

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// closed returns a function for fakeAccess that refuses these channels to everybody. It returns
// them in the order in which they were passed to it.
func closed(channelIDs ...string) func(*ident.Principal, []string) ([]string, error) {
	return func(_ *ident.Principal, asked []string) (refused []string, err error) {
		for _, id := range asked {
			if slices.Contains(channelIDs, id) {
				refused = append(refused, id)
			}
		}
		return refused, nil
	}
}

// refusal calls Subscribe, which must fail without a frame, and returns the error and its detail.
func (b *bundle) refusal(
	t *testing.T, c parleyv1connect.MessageServiceClient, channels ...*parleyv1.ChannelPosition,
) (*parleyv1.ErrorDetail, error) {
	t.Helper()
	s, err := c.Subscribe(t.Context(), &parleyv1.SubscribeRequest{Channels: channels})
	if err == nil {
		if s.Receive() {
			t.Errorf("got frame %v", s.Msg())
		}
		err = s.Err()
		_ = s.Close()
	}
	detail, _ := details(t, err)
	b.logged.oneLine(t)
	return detail, err
}

// notMemberOf checks that err is a NOT_MEMBER error that names these channels, and that its field
// is the path of the first one.
func notMemberOf(t *testing.T, d *parleyv1.ErrorDetail, err error, field string, channelIDs ...string) {
	t.Helper()
	var want []*parleyv1.LastPosition
	for _, id := range channelIDs {
		want = append(want, &parleyv1.LastPosition{ChannelId: id})
	}
	if connect.CodeOf(err) != connect.CodePermissionDenied || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER ||
		d.GetField() != field || d.GetRetryable() {
		t.Errorf("got %v, %v", err, d)
	}
	if diff := cmp.Diff(want, d.GetPositions(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A caller who is not a member of a members-only channel gets no stream. The error names all
// requested channels that they may not read.
func TestSubscribeRequiresMembership(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			c := b.client(i, b.token)
			b.access.set(closed("b", "d"))
			at := []*parleyv1.ChannelPosition{from("a", 0), from("d", 0), {ChannelId: "b"}, from("c", 0), from("d", 5)}
			d, err := b.refusal(t, c, at...)
			notMemberOf(t, d, err, "channels[1].channel_id", "d", "b")
			_, info := subscribe(t, c, from("a", 0))
			update := func(add []*parleyv1.ChannelPosition, remove ...string) (d *parleyv1.ErrorDetail, err error) {
				_, err = c.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
					StreamId: info.GetStreamId(), Add: add, Remove: remove,
				})
				if err != nil {
					d, _ = details(t, err)
					b.logged.oneLine(t)
				}
				return d, err
			}
			d, err = update(at, "a")
			notMemberOf(t, d, err, "add[1].channel_id", "d", "b")
			if got := b.hub.SubscribedSubjects("a", message.ModeMembersOnly); !slices.Equal(got, []string{"ada"}) {
				t.Errorf("what was refused has taken the channel away: %q", got)
			}
			if got := append(b.hub.SubscribedSubjects("b", message.ModeMembersOnly), b.hub.SubscribedSubjects("c", message.ModeMembersOnly)...); len(got) > 0 {
				t.Errorf("what was refused has added a channel: %q", got)
			}
			// Removals of channels require no membership. The capability is checked before the membership.
			b.access.set(func(*ident.Principal, []string) ([]string, error) { panic("asked") })
			if _, err := update(nil, "a", "b"); err != nil {
				t.Error(err)
			}
			nothing := b.client(0, b.mint("ada", []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send, ident.History}}}))
			if d, err := b.refusal(t, nothing, from("b", 0)); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING {
				t.Errorf("without capability: %v, %v", err, d)
			}
			away := fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
			b.access.set(func(*ident.Principal, []string) ([]string, error) { return nil, away })
			d, err = b.refusal(t, c, from("a", 0))
			if connect.CodeOf(err) != connect.CodeUnavailable || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE {
				t.Errorf("store away: %v, %v", err, d)
			}
			b.access.set(nil)
			b.streams.fail.Store(fault.New(fault.Unavailable, fault.OutcomeUnknown, "no answer"))
			d, err = update([]*parleyv1.ChannelPosition{from("a", 0)})
			b.streams.fail.Store(nil)
			if connect.CodeOf(err) != connect.CodeUnavailable || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN {
				t.Errorf("node away: %v, %v", err, d)
			}
		})
	}
}

// If a membership ends after the first check and before the channel is on the stream, the call
// fails, and the stream does not follow the channel.
func TestMembershipEndsWhileSubscribing(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			c := b.client(i, b.token)
			endsAfter := func(looks int32) {
				var n atomic.Int32
				b.access.set(func(p *ident.Principal, asked []string) ([]string, error) {
					if n.Add(1) <= looks {
						return nil, nil
					}
					return closed("b")(p, asked)
				})
			}
			endsAfter(1)
			d, err := b.refusal(t, c, from("a", 0), from("b", 0))
			notMemberOf(t, d, err, "channels[1].channel_id", "b")
			endsAfter(3) // two checks are those of Subscribe
			s, info := subscribe(t, c, from("a", 0))
			events(t, s, 1)
			_, err = c.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
				StreamId: info.GetStreamId(), Add: []*parleyv1.ChannelPosition{from("b", 0), from("c", 0)},
			})
			d, _ = details(t, err)
			b.logged.oneLine(t)
			notMemberOf(t, d, err, "add[0].channel_id", "b")
			if got := b.hub.SubscribedSubjects("b", message.ModeMembersOnly); len(got) > 0 {
				t.Errorf("%q still have the channel", got)
			}
		})
	}
}

// A removed member's stream no longer follows the channel, and continues for the others. A holder
// of `manage` loses no channel.
func TestLostChannelAndTypingEvents(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			ada, _ := subscribe(t, b.client(i, b.token), from("a", 0), from("b", 0))
			events(t, ada, 2)
			managing := b.mint("ada", []ident.Capability{
				{Pattern: "*", Actions: []ident.Action{ident.Subscribe}}, {Pattern: "a", Actions: []ident.Action{ident.Manage}},
			})
			asked := make(chan string, 100)
			b.access.set(func(_ *ident.Principal, channelIDs []string) ([]string, error) {
				asked <- strings.Join(channelIDs, " ")
				return nil, nil
			})
			manager, info := subscribe(t, b.client(i, managing), from("a", 0), from("b", 0))
			events(t, manager, 2)
			if _, err := b.client(i, managing).UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
				StreamId: info.GetStreamId(), Add: []*parleyv1.ChannelPosition{from("a", 0)},
			}); err != nil {
				t.Error(err)
			}
			close(asked) // no further checks
			var all []string
			for one := range asked {
				all = append(all, one)
			}
			if !slices.Equal(all, []string{"a b", "a b", "a", "a"}) {
				t.Errorf("asked about %q", all)
			}
			events(t, manager, 1)
			b.log.typing("a", "bob")
			typing := &parleyv1.ChannelEvent{ChannelId: "a", Event: &parleyv1.ChannelEvent_Typing{Typing: &parleyv1.Typing{UserId: "bob"}}}
			for _, s := range []*stream{ada, manager} {
				if diff := cmp.Diff(typing, events(t, s, 1)[0], protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
			}
			b.hub.Expel("a", "ada", message.ModeMembersOnly)
			lost := &parleyv1.ChannelEvent{ChannelId: "a", Event: &parleyv1.ChannelEvent_Lost{
				Lost: &parleyv1.ChannelLost{Reason: parleyv1.LostReason_LOST_REASON_NOT_MEMBER},
			}}
			if diff := cmp.Diff(lost, events(t, ada, 1)[0], protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			b.log.append("a", nil)
			b.log.append("b", nil)
			if e := events(t, ada, 1)[0]; e.GetChannelId() != "b" {
				t.Errorf("after the loss came %v", e)
			}
			got := events(t, manager, 2)
			if got[0].GetChannelId() != "a" || got[1].GetChannelId() != "b" {
				t.Errorf("the manager got %v", got)
			}
			// The error at the end of the stream has positions only for the channels that it still follows.
			if err := b.hub.Drain(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			for ada.Receive() { // the Reconnect frame
			}
			d, _ := details(t, ada.Err())
			if len(d.GetPositions()) != 1 || d.GetPositions()[0].GetChannelId() != "b" {
				t.Errorf("positions at the end: %v", d)
			}
		})
	}
}
