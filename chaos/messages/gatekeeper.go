package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// The times after which a gate is deleted, and a user erased, for the first time and again.
const (
	firstDelete, deleteEvery = 12 * time.Second, 90 * time.Second
	firstErase, eraseEvery   = 6 * time.Second, 60 * time.Second
)

// doorState is what the keeper knows to be the state of its channel.
type doorState int

const (
	doorOpen doorState = iota
	doorClosed
	doorGone
)

// gatekeeper is the only client that changes a gated channel, so that the order of its changes is
// known. It repeats a change until that is acknowledged, before it makes another.
type gatekeeper struct {
	*world

	house   *gatehouse
	clients []*raw
	// strangers are a stranger's clients, one for each node.
	strangers []*raw
	admins    []parleyv1connect.AdminServiceClient
	rng       *rand.Rand
	token     func(subject string) string

	n     int
	state doorState
	etag  string
	// next is the change that is not acknowledged yet, or "".
	next Kind
	// moderator is the role that the aide has, or must get.
	moderator bool
	key       string // of CreateChannel
	// leavers are the users to erase. The last one may not be erased yet.
	leavers []string
	erased  int
	// deleteAt and eraseAt are when the channel is deleted, and a user erased, next. They are zero for
	// a channel that never is: even ones are deleted, and odd ones have users who are erased, because
	// a deletion would hide what an erasure leaves.
	deleteAt time.Time
	eraseAt  time.Time
	// roleAfter is when a role may change again. No etag orders changes of roles, so the next one must
	// come long after one without an answer.
	roleAfter time.Time
}

// unknownFor is longer than a change without an answer can take.
const unknownFor = 30 * time.Second

func (r *run) newGatekeeper(i int, house *gatehouse) *gatekeeper {
	k := &gatekeeper{
		world: r.world, house: house, rng: chaos.Source(r.Seed, "keeper-"+house.channel), token: r.token,
		state: doorGone, next: Create,
	}
	if i%2 == 0 {
		k.deleteAt = time.Now().Add(firstDelete)
	} else {
		k.eraseAt = time.Now().Add(firstErase)
	}
	for _, addr := range r.Addrs(i) {
		c := newRaw(addr, r.token(keeper))
		k.clients = append(k.clients, c)
		k.strangers = append(k.strangers, newRaw(addr, r.guestToken(stranger)))
		k.admins = append(k.admins, parleyv1connect.NewAdminServiceClient(c.HTTP, c.URL(), connect.WithGRPC()))
	}
	return k
}

// run changes and uses the channel until ctx ends.
func (k *gatekeeper) run(ctx context.Context) {
	for chaos.Pause(ctx, k.rng, 300*time.Millisecond) {
		if !k.step(context.WithoutCancel(ctx)) {
			chaos.Sleep(ctx, chaos.AfterFailure)
		}
	}
}

// step calls once, for a change or not, and reports whether that was acknowledged or refused.
func (k *gatekeeper) step(ctx context.Context) bool {
	if k.next == "" {
		k.decide()
	}
	if k.next != "" && (k.state != doorGone || k.rng.IntN(2) == 0) {
		return k.change(ctx, k.pick())
	}
	if k.rng.IntN(6) == 0 {
		return k.list(ctx, k.pick(), false).Outcome == chaos.OK || k.state == doorGone
	}
	return k.send(ctx, k.pick(), false) == chaos.OK || k.state == doorGone
}

// decide chooses the next change, or none.
func (k *gatekeeper) decide() {
	now := time.Now()
	switch {
	case k.state == doorGone:
		k.next = Create
	case !k.deleteAt.IsZero() && now.After(k.deleteAt):
		k.next, k.deleteAt = Delete, now.Add(deleteEvery)
	case !k.eraseAt.IsZero() && now.After(k.eraseAt) && k.state == doorOpen:
		k.next, k.eraseAt = Erase, now.Add(eraseEvery)
	case k.rng.IntN(4) > 0:
	case k.rng.IntN(4) == 0:
		if now.Before(k.roleAfter) {
			return
		}
		k.next = Promote
		if k.moderator {
			k.next = Demote
		}
	case k.state == doorOpen:
		k.next = Close
	default:
		k.next = Open
	}
}

// change makes the next change, and reports whether it was acknowledged.
func (k *gatekeeper) change(ctx context.Context, at int) bool {
	if k.next == Erase {
		return k.erase(ctx, at)
	}
	c := k.clients[at]
	call := &GateCall{Channel: k.house.channel, User: keeper, Addr: c.Addr, Kind: k.next}
	ctx, cancel := c.Call(ctx, rawLimit)
	defer cancel()
	if k.etag == "" && (k.next == Open || k.next == Close || k.next == Delete) {
		got, err := c.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: k.house.channel})
		if err != nil {
			return false
		}
		k.etag = got.GetChannel().GetEtag()
	}
	k.callGate(call, func() error { return k.ask(ctx, c) })
	if call.Reason == parleyv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH.String() {
		k.etag = ""
	}
	switch call.Outcome {
	case chaos.OK:
		if k.next == Close {
			k.probe(context.WithoutCancel(ctx))
		}
		k.changed()
	case chaos.Unknown:
		k.roleAfter = time.Now().Add(unknownFor)
	case chaos.Failed:
	}
	return call.Outcome == chaos.OK
}

// ask calls the method of the next change. Because of the etag, a change that was not answered
// cannot be made after a later one.
func (k *gatekeeper) ask(ctx context.Context, c *raw) error {
	channel := k.house.channel
	switch k.next {
	case Create:
		if k.key == "" {
			k.n++
			k.key = fmt.Sprintf("%s-%d", channel, k.n)
		}
		_, err := c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{
			ChannelId: channel, Members: []*parleyv1.ChannelMember{{UserId: aide}}, IdempotencyKey: k.key,
		})
		return err
	case Delete:
		_, err := c.DeleteChannel(ctx, &parleyv1.DeleteChannelRequest{ChannelId: channel, Etag: k.etag})
		return err
	case Promote, Demote:
		role := parleyv1.MemberRole_MEMBER_ROLE_MEMBER
		if k.next == Promote {
			role = parleyv1.MemberRole_MEMBER_ROLE_MODERATOR
		}
		_, err := c.UpdateMember(ctx, &parleyv1.UpdateMemberRequest{ChannelId: channel, UserId: aide, Role: role})
		return err
	default:
		_, err := c.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
			ChannelId: channel, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}}, MembersOnly: new(k.next == Close), Etag: k.etag,
		})
		return err
	}
}

// probe sends as a stranger through every node at once, for a node may not know yet that the
// channel was closed.
func (k *gatekeeper) probe(ctx context.Context) {
	var sends sync.WaitGroup
	for i, c := range k.strangers {
		k.n++
		name := fmt.Sprintf("probe-of-%s-%d-%d", k.house.channel, i, k.n)
		sends.Go(func() { k.sendAs(ctx, c, stranger, name, k.house, false) })
	}
	sends.Wait()
}

// changed records that the next change was acknowledged.
func (k *gatekeeper) changed() {
	switch k.next {
	case Create:
		k.state, k.key, k.moderator = doorOpen, "", false
	case Delete:
		k.state = doorGone
	case Open:
		k.state = doorOpen
	case Close:
		k.state = doorClosed
	case Promote, Demote:
		k.moderator = k.next == Promote
	default:
	}
	k.next, k.etag = "", ""
}

func (k *gatekeeper) pick() int { return k.rng.IntN(len(k.clients)) }

// send sends a message as the keeper.
func (k *gatekeeper) send(ctx context.Context, at int, final bool) chaos.Outcome {
	k.n++
	return k.sendAs(ctx, k.clients[at], keeper, fmt.Sprintf("%s-%d", k.house.channel, k.n), k.house, final)
}

// sendAs sends a message to a gated channel with a client of user.
func (w *world) sendAs(ctx context.Context, c *raw, user, name string, house *gatehouse, final bool) chaos.Outcome {
	call := &GateCall{Channel: house.channel, User: user, Addr: c.Addr, Kind: Send, Name: name, Final: final}
	ctx, cancel := c.Call(ctx, rawLimit)
	defer cancel()
	w.callGate(call, func() error {
		res, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: house.channel, ClientMsgId: name, Content: markOf(name)})
		if err == nil && user == keeper {
			house.note(sentMessage{res.GetMsgId(), name})
		}
		return err
	})
	return call.Outcome
}

// erase lets a new user send some messages, and asks for its erasure.
func (k *gatekeeper) erase(ctx context.Context, at int) bool {
	c := k.clients[at]
	if k.erased == len(k.leavers) {
		user := fmt.Sprintf("%s-of-%s-%d", leaver, k.house.channel, k.erased)
		k.leavers = append(k.leavers, user)
		own := newRaw(c.Addr, k.guestToken(user))
		defer own.Close()
		for i := range 5 {
			k.sendAs(ctx, own, user, fmt.Sprintf("%s/%d", user, i), k.house, false)
		}
	}
	user := k.leavers[k.erased]
	call := &GateCall{Channel: k.house.channel, User: keeper, Addr: c.Addr, Kind: Erase, Name: user}
	ctx, cancel := c.Call(ctx, rawLimit)
	defer cancel()
	k.callGate(call, func() error {
		_, err := k.admins[at].EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: user, RequestId: "request-of-" + user})
		return err
	})
	if call.Outcome == chaos.OK {
		k.erased, k.next = k.erased+1, ""
	}
	return call.Outcome == chaos.OK
}

// list reads all of the channel as the keeper.
func (k *gatekeeper) list(ctx context.Context, at int, final bool) *GateCall {
	return k.listAs(ctx, k.clients[at], keeper, k.house.channel, final)
}

// listAs reads all of a gated channel with a client of user.
func (w *world) listAs(ctx context.Context, c *raw, user, channel string, final bool) *GateCall {
	call := &GateCall{Channel: channel, User: user, Addr: c.Addr, Kind: List, Final: final}
	req := &parleyv1.ListMessagesRequest{ChannelId: channel, AfterSeq: new(int64), PageSize: 500}
	ctx, cancel := c.Call(ctx, readLimit)
	defer cancel()
	w.callGate(call, func() error {
		for first := true; first || req.GetPageToken() != ""; first = false {
			res, err := c.ListMessages(ctx, req)
			if err != nil {
				return err
			}
			call.show(res.GetMessages()...)
			req.PageToken = res.GetNextPageToken()
		}
		return nil
	})
	return call
}

// The times within which, after all faults, a deleted channel can be created again, and an erased
// user's messages are gone, and a long run's erasure has ended.
const (
	createLimit = 90 * time.Second
	eraseLimit  = time.Minute
	erasedLimit = 3 * time.Minute
)

// finish completes the last change and erasure, opens the channel, sends a last message, waits for
// the strangers' streams to get it, and lists the channel. It then closes the clients.
func (k *gatekeeper) finish(ctx context.Context, long bool) {
	defer func() {
		for _, c := range slices.Concat(k.clients, k.strangers) {
			c.Close()
		}
	}()
	k.until(ctx, createLimit, func(ctx context.Context) bool {
		if k.next == "" && k.state == doorOpen {
			return true
		}
		if k.next == "" {
			k.next = map[doorState]Kind{doorGone: Create, doorClosed: Open}[k.state]
		}
		k.change(ctx, 0)
		return false
	})
	k.send(ctx, 0, true)
	last := fmt.Sprintf("%s-%d", k.house.channel, k.n)
	k.until(ctx, levelLimit, func(context.Context) bool {
		for _, s := range k.house.streams {
			if s.newest() != last {
				return false
			}
		}
		return true
	})
	k.until(ctx, eraseLimit, func(ctx context.Context) bool {
		for _, name := range k.list(ctx, 0, false).Shown {
			for _, user := range k.leavers[:k.erased] {
				if isOf(name, user) {
					return false
				}
			}
		}
		return true
	})
	if long {
		k.until(ctx, erasedLimit, k.allErased)
	}
	k.list(ctx, 0, true)
}

// allErased reports whether the jobs of all erased users are done.
func (k *gatekeeper) allErased(ctx context.Context) bool {
	for _, user := range k.leavers[:k.erased] {
		ctx, cancel := k.clients[0].Call(ctx, rawLimit)
		res, err := k.admins[0].GetErasure(ctx, &parleyv1.GetErasureRequest{RequestId: "request-of-" + user})
		cancel()
		if err != nil || res.GetErasure().GetState() < parleyv1.ErasureState_ERASURE_STATE_ERASED {
			return false
		}
	}
	for _, user := range k.leavers[:k.erased] {
		call := &GateCall{Channel: k.house.channel, User: keeper, Kind: Erased, Name: user}
		k.callGate(call, func() error { return nil })
	}
	return true
}

// until calls done until it returns true, for up to limit.
func (k *gatekeeper) until(ctx context.Context, limit time.Duration, done func(ctx context.Context) bool) {
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done(ctx) {
		if !chaos.Sleep(waitCtx, 200*time.Millisecond) {
			return
		}
	}
}
