package presence

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// watcher watches users on invisible streams, and changes which ones by UpdateWatch.
type watcher struct {
	*world

	name    string
	rng     *rand.Rand
	clients []*client
	// node is the index of the node of the next stream. A watcher that roams goes to another node
	// after each stream, and ends each soon.
	node  int
	roams bool
	// held is what the watcher has of the present stream.
	held held
}

// held is the states that a watcher has, by user. Safe for concurrent use.
type held struct {
	mu     sync.Mutex // guards the fields below
	users  map[string]Seen
	all    bool
	behind bool
}

// times of a watcher.
const (
	// watchFor is the mean time that a watcher that roams keeps a stream.
	watchFor = 6 * time.Second
	// updateEvery is the mean time between two calls of UpdateWatch.
	updateEvery = 1200 * time.Millisecond
)

// newWatchers returns one watcher that stays on each node, and two that roam.
func (w *world) newWatchers() []*watcher {
	var all []*watcher
	add := func(name string, node int, roams bool) {
		all = append(all, &watcher{
			world: w, name: name, rng: chaos.Source(w.seed, name), clients: w.clientsOf(name), node: node, roams: roams,
		})
	}
	for i := range w.addrs {
		add("watcher-"+string(rune('a'+i)), i, false)
	}
	add("roamer-a", 0, true)
	add("roamer-b", 1, true)
	return all
}

// run opens streams until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer closeAll(w.clients)
	for ctx.Err() == nil {
		w.session(ctx)
		if w.roams {
			w.node++
		}
		chaos.Pause(ctx, w.rng, chaos.AfterFailure)
	}
}

// session opens a stream and records what it carries until it ends.
func (w *watcher) session(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := w.clients[w.node%len(w.clients)]
	watch := &Watch{ID: w.newID(w.name), Client: w.name, Addr: c.Addr, Begin: w.rec.Now()}
	for _, user := range w.users {
		if w.rng.IntN(3) > 0 {
			watch.Users = append(watch.Users, user)
		}
	}
	w.rec.watch(watch)
	w.held.reset()
	frames := make(chan received, maxAhead)
	go w.receive(ctx, c, &parleyv1.ConnectRequest{Invisible: true, Watch: watch.Users}, frames)
	var stop <-chan time.Time
	if w.roams {
		stop = after(w.rng, watchFor)
	}
	var updating sync.WaitGroup
	for watch.End == 0 {
		select {
		case f := <-frames:
			first := watch.First == 0
			w.take(watch, f)
			if id := f.msg.GetInfo().GetStream().GetStreamId(); first && id != "" {
				updating.Go(func() { w.update(ctx, watch.ID, id) })
			}
		case <-stop:
			if stop = nil; !w.isCalm() {
				watch.End, watch.How = w.rec.Now(), Closed
			}
		case <-ctx.Done():
			watch.End, watch.How = w.rec.Now(), Closed
		}
	}
	cancel()
	updating.Wait()
	w.held.reset()
	w.rec.watch(watch)
}

// take records a frame or the end of a stream.
func (w *watcher) take(watch *Watch, f received) {
	if f.msg == nil {
		watch.End, watch.How = f.at, Lost
		if f.err != nil {
			watch.Err = f.err.Error()
		}
		return
	}
	watch.Last = f.at
	frame := &Frame{At: f.at, Watch: watch.ID, Via: ViaFrame}
	update := f.msg.GetPresence()
	if info := f.msg.GetInfo(); info != nil {
		watch.First = f.at
		w.rec.watch(watch)
		frame.Via, update = ViaInfo, info.GetPresence().GetPresence()
	}
	frame.Users = seenOf(update.GetUsers())
	if update != nil {
		frame.Lagging = update.Lagging
	}
	if len(frame.Users) > 0 || frame.Lagging != nil {
		w.rec.Write(line{Frame: frame})
		w.held.put(frame)
	}
}

// update changes which users a stream watches, until ctx ends. When the run calms down it adds all
// users.
func (w *watcher) update(ctx context.Context, id, streamID string) {
	rng := chaos.Source(w.seed, id)
	for {
		calm := !w.rest(ctx, rng, updateEvery)
		if ctx.Err() != nil {
			return
		}
		op := &Op{Kind: UpdateWatch, Client: w.name, Stream: id}
		for _, user := range w.users {
			switch draw := rng.IntN(12); {
			case calm, draw == 0:
				op.Add = append(op.Add, user)
			case draw == 1:
				op.Remove = append(op.Remove, user)
			}
		}
		if len(op.Add)+len(op.Remove) == 0 {
			continue
		}
		c := w.clients[rng.IntN(len(w.clients))]
		err := w.call(ctx, c, op, func(ctx context.Context) error {
			res, err := c.UpdateWatch(ctx, &parleyv1.UpdateWatchRequest{StreamId: streamID, Add: op.Add, Remove: op.Remove})
			op.Users = seenOf(res.GetPresence())
			return err
		})
		if err == nil {
			w.rec.Write(line{Frame: &Frame{At: op.End, Watch: id, Via: ViaAnswer, Users: op.Users}})
			w.held.put(&Frame{Users: op.Users})
		}
		if calm && err == nil {
			w.held.complete()
			return
		}
		if calm {
			chaos.Pause(ctx, rng, chaos.AfterFailure)
		}
	}
}

func (h *held) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users, h.all, h.behind = make(map[string]Seen), false, false
}

func (h *held) complete() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = true
}

// put adds the states of a frame. Of two states of a user, that of the higher revision stays.
func (h *held) put(f *Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range f.Users {
		if old, ok := h.users[s.User]; !ok || s.Revision >= old.Revision {
			h.users[s.User] = s
		}
	}
	if f.Lagging != nil {
		h.behind = *f.Lagging
	}
}

// differs describes a difference between what the watcher has and the states of users. It is "" if
// there is none.
func (h *held) differs(users []string, states map[string]State) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.all || h.behind {
		return "does not watch all users yet, or is behind"
	}
	for _, user := range users {
		if s, ok := h.users[user]; !ok || s.State != states[user] {
			return "has " + user + " as " + describe(s.State)
		}
	}
	return ""
}

// describe returns a state in quotation marks.
func describe(s State) string { return "\"" + string(s) + "\"" }
