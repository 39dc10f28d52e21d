package messages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// signOutFor is how long a sign-out is repeated until it is acknowledged.
	signOutFor = 30 * time.Second
	// stayFor is how long a stream waits for its end after the sign-out. Longer than any stream may
	// live on (see checkStreamEnd).
	stayFor = 15 * time.Second
)

// loginClient signs in and out, one login after another. It goes on with the tokens that it has
// signed out until the run's end. Safe for concurrent use.
type loginClient struct {
	*world

	name   string
	seed   uint64
	secret []byte
	nodes  []*loginNode

	mu  sync.Mutex // guards old
	old [][]loginKey
}

func (r *run) newLoginClient(i int) *loginClient {
	l := &loginClient{world: r.world, name: fmt.Sprintf("%s%d", loginPrefix, i), seed: r.Seed, secret: r.Fleet.Secret()}
	for _, addr := range r.addrs {
		l.nodes = append(l.nodes, newLoginNode(addr))
	}
	return l
}

// startLogins starts the clients that sign in and out.
func (r *run) startLogins(ctx context.Context) {
	for i := range r.load.Logins {
		l := r.newLoginClient(i)
		r.logins = append(r.logins, l)
		r.writing.Go(func() { r.fail(l.name, l.run(ctx)) })
		for _, node := range l.nodes {
			r.writing.Go(func() { l.haunt(ctx, node) })
		}
	}
}

// run makes one login after another until ctx ends. The last one is signed out then.
func (l *loginClient) run(ctx context.Context) error {
	rng := chaos.Source(l.seed, l.name)
	for n := 0; n == 0 || chaos.Pause(ctx, rng, 300*time.Millisecond); n++ {
		user := fmt.Sprintf("%s-%d", l.name, n)
		keys, err := mintLogin(l.secret, user, rng.IntN(4) > 0)
		if err != nil {
			return err
		}
		l.one(ctx, keys)
		l.mu.Lock()
		l.old = append(l.old, keys)
		l.mu.Unlock()
	}
	return nil
}

// one uses a login, with a stream on every node, and signs it out after a random time. It goes on
// for a moment after the acknowledgement.
func (l *loginClient) one(ctx context.Context, keys []loginKey) {
	rng := chaos.Source(l.seed, keys[0].user)
	live := context.WithoutCancel(ctx)
	out := make(chan struct{}) // closed once the sign-out has ended
	var all sync.WaitGroup
	defer all.Wait()
	for i, node := range l.nodes {
		own := chaos.Source(l.seed, fmt.Sprint(keys[0].user, i))
		all.Go(func() { l.stay(live, own, &keys[own.IntN(len(keys)-1)], node, out) })
		all.Go(func() { l.use(ctx, keys, node, out) })
	}
	chaos.Sleep(ctx, 300*time.Millisecond+time.Duration(rng.Int64N(int64(3*time.Second))))
	l.signOut(live, rng, &keys[0])
	close(out)
}

// use calls a node with the tokens of a login until out is closed, and a few times more.
func (l *loginClient) use(ctx context.Context, keys []loginKey, node *loginNode, out <-chan struct{}) {
	rng := chaos.Source(l.seed, keys[0].user+node.Addr)
	live := context.WithoutCancel(ctx)
	for after := 0; after < 8; {
		l.call(live, rng, &keys[rng.IntN(len(keys))], node)
		chaos.Sleep(live, time.Duration(60+rng.IntN(300))*time.Millisecond)
		select {
		case <-out:
			if after++; ctx.Err() != nil {
				return
			}
		default:
		}
	}
}

// signOut repeats SignOut until it succeeds, for up to signOutFor.
func (l *loginClient) signOut(ctx context.Context, rng *rand.Rand, key *loginKey) {
	viaSDK := rng.IntN(3) == 0
	for began := time.Now(); time.Since(began) < signOutFor; chaos.Sleep(ctx, chaos.AfterFailure) {
		c := &LoginCall{User: key.user, Token: key.name, Kind: SignOut}
		if viaSDK {
			l.signOutSDK(ctx, rng, key, c)
		} else {
			node := l.nodes[rng.IntN(len(l.nodes))]
			c.Addr = node.Addr
			l.do(ctx, key, c, func(ctx context.Context) error {
				_, err := node.presence.SignOut(ctx, &parleyv1.SignOutRequest{})
				return err
			})
		}
		if c.Outcome != chaos.Unknown && !again(c.Code) {
			return
		}
	}
}

// signOutSDK signs out with the SDK, which takes TOKEN_REVOKED for success.
func (l *loginClient) signOutSDK(ctx context.Context, rng *rand.Rand, key *loginKey, c *LoginCall) {
	first := rng.IntN(len(l.addrs))
	for i := range l.addrs {
		c.Addr += "," + l.addrs[(first+i)%len(l.addrs)]
	}
	c.Addr = strings.TrimPrefix(c.Addr, ",")
	client, err := parley.New(c.Addr, parley.WithToken(key.token))
	if err != nil {
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	c.Begin = l.rec.Now()
	err = client.SignOut(ctx)
	c.End = l.rec.Now()
	c.end(err)
	l.rec.Write(line{Login: c})
}

// do makes a call with a token and records it.
func (l *loginClient) do(ctx context.Context, key *loginKey, c *LoginCall, call func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(key.authorized(ctx), rawLimit)
	defer cancel()
	c.Begin = l.rec.Now()
	err := call(ctx)
	c.End = l.rec.Now()
	c.end(err)
	l.rec.Write(line{Login: c})
}

// call makes a random call with a token on a node.
func (l *loginClient) call(ctx context.Context, rng *rand.Rand, key *loginKey, node *loginNode) {
	c := &LoginCall{User: key.user, Token: key.name, Addr: node.Addr, Kind: Info}
	switch rng.IntN(6) {
	case 0:
		c.Kind = Send
		l.do(ctx, key, c, func(ctx context.Context) error {
			_, err := node.messages.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: l.name, Content: "signed in"})
			return err
		})
	case 1:
		c.Kind = List
		l.do(ctx, key, c, func(ctx context.Context) error {
			_, err := node.messages.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: l.name, PageSize: 1})
			return err
		})
	default:
		l.info(ctx, key, node, c)
	}
}

func (l *loginClient) info(ctx context.Context, key *loginKey, node *loginNode, c *LoginCall) {
	l.do(ctx, key, c, func(ctx context.Context) error {
		_, err := node.server.GetServerInfo(ctx, &parleyv1.GetServerInfoRequest{})
		return err
	})
}

// stay keeps a stream open on a node until out is closed, and then until the stream ends or stayFor
// has passed.
func (l *loginClient) stay(ctx context.Context, rng *rand.Rand, key *loginKey, node *loginNode, out <-chan struct{}) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-out:
			chaos.Sleep(ctx, stayFor)
			leave(errLeft)
		}
	}()
	kind := Stream
	if rng.IntN(3) == 0 {
		kind = Join
	}
	for {
		l.open(ctx, key, node, kind, 0)
		select {
		case <-out:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// open opens a stream and reads it until it ends, or, unless most is 0, until that many messages
// came, and records it.
func (l *loginClient) open(ctx context.Context, key *loginKey, node *loginNode, kind Kind, most int) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A node that does not answer must not keep the client. That is no end of the stream's own.
	silent := errors.New("the stream is silent")
	watch := time.AfterFunc(deadAfter, func() { cancel(silent) })
	defer watch.Stop()
	c := &LoginCall{User: key.user, Token: key.name, Addr: node.Addr, Kind: kind, Begin: l.rec.Now()}
	n := 0
	err := node.stream(key.authorized(ctx), kind, key.user, func() {
		watch.Reset(deadAfter)
		c.Last = l.rec.Now()
		if n++; n == 1 {
			c.First = c.Last
		}
		if n == most {
			cancel(errLeft)
		}
	})
	c.End = l.rec.Now()
	if errors.Is(context.Cause(ctx), errLeft) && c.First != 0 {
		c.Left, c.Outcome = true, chaos.OK
	} else {
		c.end(err)
	}
	l.rec.Write(line{Login: c})
}

// stream opens a stream of a kind, and calls take for each message until the stream ends. It
// returns why it ended.
func (n *loginNode) stream(ctx context.Context, kind Kind, user string, take func()) error {
	switch kind {
	case Join:
		stream, err := n.presence.Connect(ctx, &parleyv1.ConnectRequest{Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: user})
		return receive(stream, err, take)
	case Consume:
		stream, err := n.queues.Consume(ctx, &parleyv1.ConsumeRequest{Topics: []string{"nothing"}, Group: "nobody", Consumer: user})
		return receive(stream, err, take)
	default:
		stream, err := n.messages.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: hot}}})
		return receive(stream, err, take)
	}
}

// receive reads a stream that was opened with err to its end.
func receive[M any](stream *connect.ServerStreamForClient[M], err error, take func()) error {
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		take()
	}
	return stream.Err()
}

// haunt calls and opens streams on a node with the tokens of logins that were signed out, and
// now and then with one that was not, until ctx ends.
func (l *loginClient) haunt(ctx context.Context, node *loginNode) {
	rng := chaos.Source(l.seed, l.name+"-haunts-"+node.Addr)
	for chaos.Pause(ctx, rng, 200*time.Millisecond) {
		key, ok := l.pickOld(rng)
		if !ok {
			continue
		}
		live := context.WithoutCancel(ctx)
		if rng.IntN(3) > 0 {
			l.call(live, rng, &key, node)
			continue
		}
		kinds := []Kind{Stream, Join, Consume}
		l.open(live, &key, node, kinds[rng.IntN(len(kinds))], 1)
	}
}

// pickOld returns a token of a login that was signed out, half of the time of one of the newest
// four. One in ten is one that lives on.
func (l *loginClient) pickOld(rng *rand.Rand) (loginKey, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.old) == 0 {
		return loginKey{}, false
	}
	at := rng.IntN(len(l.old))
	if rng.IntN(2) == 0 {
		at = max(0, len(l.old)-1-rng.IntN(4))
	}
	keys := l.old[at]
	if rng.IntN(10) == 0 {
		return keys[len(keys)-1], true
	}
	return keys[rng.IntN(len(keys)-1)], true
}

// finish calls with every token on every node, when nothing is broken.
func (l *loginClient) finish(ctx context.Context) {
	var nodes sync.WaitGroup
	for _, node := range l.nodes {
		nodes.Go(func() {
			for _, keys := range l.old {
				for i := range keys {
					l.info(ctx, &keys[i], node, &LoginCall{User: keys[i].user, Token: keys[i].name, Addr: node.Addr, Kind: Info, Final: true})
				}
			}
			node.Close()
		})
	}
	nodes.Wait()
}
