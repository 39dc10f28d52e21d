package presence

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// poller reads the presence of all users from one node.
type poller struct {
	*world

	name   string
	rng    *rand.Rand
	client *client
}

const (
	// pollEvery is the mean time between two calls of a poller.
	pollEvery = 250 * time.Millisecond
	// pollFor and pollRest are the mean times of reads and of rest in turn. A read shows its node the
	// ends of the logs, which the node must learn without it, too.
	pollFor, pollRest = 6 * time.Second, 10 * time.Second
	// pageSize is the page size of ListOnlineUsers. It is small, so that a list has several pages.
	pageSize = 7
)

func (w *world) newPoller(i int) *poller {
	name := "poller-" + strconv.Itoa(i)
	return &poller{world: w, name: name, rng: chaos.Source(w.seed, name), client: newClient(w.addrs[i], w.token(name))}
}

// run reads until ctx ends.
func (p *poller) run(ctx context.Context) {
	defer p.client.Close()
	rest := after(p.rng, pollFor)
	for n := 0; chaos.Pause(ctx, p.rng, pollEvery); n++ {
		select {
		case <-rest:
			p.rest(ctx, p.rng, pollRest)
			rest = after(p.rng, pollFor)
		default:
		}
		if n%3 == 0 {
			_, _ = p.list(ctx, false)
		} else {
			_, _ = p.get(ctx, false)
		}
	}
}

// get reads the states of all users.
func (p *poller) get(ctx context.Context, final bool) ([]Seen, error) {
	op := &Op{Kind: GetPresence, Client: p.name, Final: final}
	err := p.call(context.WithoutCancel(ctx), p.client, op, func(ctx context.Context) error {
		res, err := p.client.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: p.users})
		op.Users = seenOf(res.GetPresence())
		return err
	})
	return op.Users, err
}

// list reads all pages of the users that are online.
func (p *poller) list(ctx context.Context, final bool) ([]Seen, error) {
	op := &Op{Kind: ListOnline, Client: p.name, Final: final}
	err := p.call(context.WithoutCancel(ctx), p.client, op, func(ctx context.Context) error {
		page := ""
		for {
			res, err := p.client.ListOnlineUsers(ctx, &parleyv1.ListOnlineUsersRequest{PageSize: pageSize, PageToken: page})
			if err != nil {
				return err
			}
			op.Users = append(op.Users, seenOf(res.GetPresence())...)
			if page = res.GetNextPageToken(); page == "" {
				return nil
			}
		}
	})
	return op.Users, err
}
