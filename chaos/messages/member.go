package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// clubs is the number of members-only channels. guests is the number of users who join and leave
// them.
const (
	clubs  = 3
	guests = 4
)

func club(i int) string  { return fmt.Sprintf("club-%d", i) }
func guest(i int) string { return fmt.Sprintf("guest-%d", i) }

// guestActions are the capabilities of a guest's token. It lacks `manage`, which would grant access
// without membership.
var guestActions = map[string][]string{"*": {"send", "history", "subscribe"}}

// memberManager manages the members of the clubs. There is only one, so the order of the changes of
// a membership is known.
type memberManager struct {
	*world

	clients []*raw
	rng     *rand.Rand
}

func (w *world) newMemberManager(seed uint64) *memberManager {
	b := &memberManager{world: w, rng: chaos.Source(seed, "member-manager")}
	for _, addr := range w.addrs {
		b.clients = append(b.clients, newRaw(addr, w.token("member-manager")))
	}
	return b
}

// open creates the clubs, each with every other guest. It returns false if the server does not
// implement channels with members.
func (b *memberManager) open(ctx context.Context) (bool, error) {
	for i := range clubs {
		req := &parleyv1.CreateChannelRequest{ChannelId: club(i), MembersOnly: true}
		users := []string{"member-manager"}
		for g := i % 2; g < guests; g += 2 {
			req.Members = append(req.Members, &parleyv1.ChannelMember{UserId: guest(g)})
			users = append(users, guest(g))
		}
		op := Op{
			Client: "member-manager", Kind: Create, Channel: club(i), Users: users, After: unset,
			Before: unset,
		}
		b.rec.Start(&op)
		callCtx, cancel := b.clients[0].Call(ctx, 10*time.Second)
		_, err := b.clients[0].CreateChannel(callCtx, req)
		cancel()
		op.end(err)
		b.rec.Done(&op)
		if connect.CodeOf(err) == connect.CodeUnimplemented {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("create %s: %w", club(i), err)
		}
	}
	return true, nil
}

// run adds and removes guests through random nodes until ctx ends.
func (b *memberManager) run(ctx context.Context) {
	member := make(map[[2]int]bool)
	for i := range clubs {
		for g := i % 2; g < guests; g += 2 {
			member[[2]int{i, g}] = true
		}
	}
	for chaos.Pause(ctx, b.rng, 700*time.Millisecond) {
		key := [2]int{b.rng.IntN(clubs), b.rng.IntN(guests)}
		op := b.change(context.WithoutCancel(ctx), key[0], key[1], !member[key])
		if op.Outcome == chaos.OK {
			member[key] = !member[key]
		}
	}
	for _, c := range b.clients {
		c.Close()
	}
}

func (b *memberManager) change(ctx context.Context, c, g int, add bool) Op {
	at := b.rng.IntN(len(b.clients))
	client := b.clients[at]
	op := Op{
		Client: "member-manager", Addr: b.addrs[at], Kind: Remove, Channel: club(c), Users: []string{guest(g)}, Limit: int64(rawLimit),
		After: unset, Before: unset,
	}
	if add {
		op.Kind = Add
	}
	b.rec.Start(&op)
	ctx, cancel := client.Call(ctx, rawLimit)
	defer cancel()
	var err error
	if add {
		_, err = client.AddMembers(ctx, &parleyv1.AddMembersRequest{
			ChannelId: op.Channel, Members: []*parleyv1.ChannelMember{{UserId: guest(g)}},
		})
	} else {
		_, err = client.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: op.Channel, UserIds: op.Users})
	}
	op.end(err)
	b.rec.Done(&op)
	return op
}

// end records the ending of a raw call, with the reason of its error.
func (op *Op) end(err error) {
	e := chaos.EndingOf(err)
	if op.ended(e); e.Reason != 0 {
		op.Reason = e.Reason.String()
	}
}

// ended records the ending of a call.
func (op *Op) ended(e chaos.Ending) { op.Outcome, op.Code, op.Err = e.Outcome, e.Code, e.Err }

// notMember is the reason of an error for lack of membership.
var notMember = parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER.String()

// guestCaller is a guest that sends, lists and calls MarkRead in the clubs, whether it is a member
// or not.
type guestCaller struct {
	*world

	name, addr string
	client     *raw
	rng        *rand.Rand
	n          int
}

func (w *world) newGuestCaller(seed uint64, i int, addr string) *guestCaller {
	name := guest(i)
	return &guestCaller{
		world: w, name: name, addr: addr, client: newRaw(addr, w.guestToken(name)), rng: chaos.Source(seed, "guest-caller-"+name),
	}
}

func (v *guestCaller) run(ctx context.Context) {
	defer v.client.Close()
	for every := 150 * time.Millisecond; chaos.Pause(ctx, v.rng, every); {
		every = 150 * time.Millisecond
		if v.one(context.WithoutCancel(ctx)) == chaos.Unknown {
			every = chaos.AfterFailure
		}
	}
}

// one makes one random call and returns its outcome. It may make no call, which counts as OK.
func (v *guestCaller) one(ctx context.Context) chaos.Outcome {
	v.n++
	op := Op{
		Client: "guest-caller-" + v.name, Addr: v.addr, Channel: club(v.rng.IntN(clubs)), From: v.name, Limit: int64(rawLimit), After: unset,
		Before: unset,
	}
	ctx, cancel := v.client.Call(ctx, rawLimit)
	defer cancel()
	switch v.rng.IntN(4) {
	case 0, 1:
		op.Kind, op.ClientMsgID = Send, fmt.Sprintf("guest-caller-%s-%d", v.name, v.n)
		op.Content = text(v.rng, op.ClientMsgID)
		v.rec.Start(&op)
		res, err := v.client.SendMessage(ctx, op.sendRequest())
		if op.end(err); err == nil {
			op.MsgID, op.Seq, op.Count, op.Epoch = res.GetMsgId(), res.GetSeq(), res.GetCount(), res.GetEpoch()
			op.Duplicate, op.TimeMS = res.GetDuplicate(), res.GetMsgTime().AsTime().UnixMilli()
			v.told.raise(op.Channel, op.Seq)
		}
	case 2:
		op.Kind, op.From = List, ""
		v.rec.Start(&op)
		res, err := v.client.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: op.Channel, PageSize: 20})
		if op.end(err); err == nil {
			op.End, op.Head, op.More = v.rec.Now(), res.GetHeadSeq(), res.GetNextPageToken() != ""
			for _, m := range res.GetMessages() {
				op.Copies = append(op.Copies, v.note(m))
			}
			v.told.raise(op.Channel, op.Head)
		}
	default:
		if v.rng.IntN(2) == 0 {
			op.Channel = v.pickPlain(v.rng)
		}
		op.Kind, op.Seq = MarkRead, v.told.get(op.Channel)-v.rng.Int64N(20)
		if op.Seq < 1 {
			return chaos.OK
		}
		op.MinSeq = op.Seq
		v.rec.Start(&op)
		res, err := v.client.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: op.Channel, Seq: op.Seq})
		op.end(err)
		op.Seq, op.Count, op.Epoch = res.GetReadSeq(), res.GetUnread(), res.GetEpoch()
	}
	v.rec.Done(&op)
	return op.Outcome
}
