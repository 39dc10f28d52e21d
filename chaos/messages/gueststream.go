package messages

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// guestStream is a guest's stream. It follows every club (members-only channel) that admits the
// guest, and keeps requesting the others through random nodes.
type guestStream struct {
	*rawSubscriber

	user string
	all  []*raw
	rng  *rand.Rand
}

// newGuestStream creates the stream of the guest g on node i. It opens nothing before run.
func (w *world) newGuestStream(seed uint64, g, i int) *guestStream {
	user := guest(g)
	c := &guestStream{
		rawSubscriber: &rawSubscriber{
			world: w, name: "guest-stream-" + user, addr: w.addrs[i], client: newRaw(w.addrs[i], w.guestToken(user)),
			from: make(map[string]int64), user: user,
		},
		user: user, rng: chaos.Source(seed, "guest-stream-"+user),
	}
	for _, addr := range w.addrs {
		c.all = append(c.all, newRaw(addr, w.guestToken(user)))
	}
	return c
}

// run opens one stream after another until ctx ends. Each starts without channels.
func (c *guestStream) run(ctx context.Context) {
	defer c.client.Close()
	for ctx.Err() == nil {
		c.streams = make(chan string, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.stream(ctx)
		}()
		c.requestClubs(ctx, done)
		<-done
		for i := range clubs {
			c.lost(club(i))
		}
		chaos.Sleep(ctx, 300*time.Millisecond)
	}
	for _, r := range c.all {
		r.Close()
	}
}

// lost records that the stream no longer follows a channel.
func (c *guestStream) lost(channel string) {
	if life, ok := c.end(channel); ok {
		c.rec.EndLife(life)
	}
}

// requestClubs requests clubs that the stream lacks until the stream has ended, which closes done.
func (c *guestStream) requestClubs(ctx context.Context, done <-chan struct{}) {
	var stream string
	select {
	case <-done:
		return
	case stream = <-c.streams:
	}
	for chaos.Pause(ctx, c.rng, 300*time.Millisecond) {
		select {
		case <-done:
			return
		default:
		}
		channel := club(c.rng.IntN(clubs))
		if c.follows(channel) {
			continue
		}
		at := c.rng.IntN(len(c.all))
		c.addClub(context.WithoutCancel(ctx), c.all[at], c.addrs[at], stream, channel)
	}
	<-done
}

// addClub requests, through one node, that a channel is added to the stream, which may be on
// another node.
func (c *guestStream) addClub(ctx context.Context, client *raw, addr, stream, channel string) {
	op := Op{
		Client: c.name, Addr: addr, Kind: Update, Channel: channel, From: c.user, Limit: int64(rawLimit), After: unset, Before: unset,
	}
	after := c.told.get(channel)
	life := Life{Client: c.name, Addr: c.addr, Channel: channel, Begin: c.rec.Now(), After: max(0, after-20), User: c.user}
	c.begin(channel, c.rec.Life(life))
	c.rec.Start(&op)
	ctx, cancel := client.Call(ctx, rawLimit)
	defer cancel()
	_, err := client.UpdateSubscription(ctx, &parleyv1.UpdateSubscriptionRequest{
		StreamId: stream,
		Add:      []*parleyv1.ChannelPosition{{ChannelId: channel, AfterSeq: new(life.After)}},
	})
	op.end(err)
	c.rec.Done(&op)
	if op.Outcome == chaos.Failed {
		c.lost(channel) // if it was added all the same, its events will match no life
	}
}

// follows reports whether the stream has the channel, as far as the guest knows.
func (c *guestStream) follows(channel string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.id[channel]
	return ok
}

// behind always returns nil: a guest may be removed at any time, so a run does not wait for it.
func (c *guestStream) behind(map[string]int64) *Late { return nil }

// channelList is a user's final list of channels, from one node.
type channelList struct {
	User     string        `json:"user"`
	Addr     string        `json:"addr"`
	Channels []UserChannel `json:"channels"`
	Err      string        `json:"err,omitempty"`
}

// UserChannel is one of a user's channels in a list.
type UserChannel struct {
	Channel string `json:"channel"`
	Head    int64  `json:"head"`
	Count   int64  `json:"count"`
	ReadSeq int64  `json:"read_seq"`
	Unread  int64  `json:"unread"`
	// Last is the index of the last message in History.Copies, or unset if the channel has none.
	Last int `json:"last"`
}

// listChannels returns the complete list of a user's channels. A failure is in Err.
func (w *world) listChannels(ctx context.Context, user, addr, token string) channelList {
	m := channelList{User: user, Addr: addr}
	client := newRaw(addr, token)
	defer client.Close()
	req := &parleyv1.ListChannelsRequest{PageSize: 7}
	for {
		ctx, cancel := client.Call(ctx, rawLimit)
		res, err := client.ListChannels(ctx, req)
		cancel()
		if err != nil {
			m.Err = err.Error()
			return m
		}
		for _, c := range res.GetChannels() {
			mc := UserChannel{
				Channel: c.GetChannel().GetChannelId(), Head: c.GetChannel().GetHeadSeq(), Count: c.GetChannel().GetCount(),
				ReadSeq: c.GetReadSeq(), Unread: c.GetUnread(), Last: unset,
			}
			if c.GetLastMessage() != nil {
				mc.Last = w.note(c.GetLastMessage())
			}
			m.Channels = append(m.Channels, mc)
		}
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			slices.SortFunc(m.Channels, func(a, b UserChannel) int {
				if a.Channel < b.Channel {
					return -1
				}
				return 1
			})
			return m
		}
	}
}
