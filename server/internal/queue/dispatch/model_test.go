package dispatch

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	modelSteps = flag.Int("model.steps", 3000, "steps of one run of the model test")
	modelRuns  = flag.Int("model.runs", 12, "runs of the model test")
	modelSeed  = flag.Uint64("model.seed", 0, "seed of the first run; 0 means a random one")
)

// worker is a worker of the model: what it knows of its deliveries.
type worker struct {
	cfg      Session
	attached bool
	has      map[qlog.ID]*holding
}

type holding struct {
	gen, size      int
	key            string
	begun, suspect bool
	unanswered     *Settlement
}

type asked struct {
	settlement *Settlement
	cancel     qlog.ID
}

// world is the model: a log, a dispatcher and workers, driven by a random source.
type world struct {
	t   testing.TB
	r   *rand.Rand
	log *fakeLog
	old *fakeLog // a copy to roll back to
	cfg Config
	d   *Dispatcher
	now time.Time

	workers []*worker
	born    int
	// commit is under way, with reads.
	commit *qlog.Commit
	read   Read
	reread []qlog.Pos
	frozen bool
	// adopting: the workers' reports are not all told to the dispatcher.
	adopting bool
	// rolled: the log lost writes since the dispatcher began.
	rolled bool
	// clean: the earlier holder released the lease, so that workers keep all that they have.
	clean bool
	// cancelled are the entries that were cancelled since the dispatcher began.
	cancelled map[qlog.ID]bool

	first     map[string]qlog.ID // the latest first delivery of a key
	delivered map[qlog.ID]int
	begun     map[qlog.ID]int
	accepted  map[qlog.ID]string
	trace     []string
}

func newWorld(t testing.TB, seed uint64, order Order) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, uint64(order))), log: newFakeLog(t), now: at(0), cancelled: map[qlog.ID]bool{},
		first: map[string]qlog.ID{}, delivered: map[qlog.ID]int{}, begun: map[qlog.ID]int{}, accepted: map[qlog.ID]string{},
	}
	w.cfg = Config{
		Group: "g", Order: order, MaxAttempts: 1 + w.r.IntN(6), MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second,
		NonRetryable: []string{"fatal"}, AckTimeout: 2 * time.Second, MaxRunTime: 5 * time.Second, DeleteSettled: w.r.IntN(2) == 0,
		MaxBytes: 2000, MaxOpen: 150, Random: w.r.Int64N, Exclusive: w.r.IntN(5) == 0,
	}
	w.old = w.log.clone()
	w.load()
	return w
}

func (w *world) load() {
	state, chunks, rows := w.log.acquire()
	d, err := New(w.cfg, state, chunks, rows, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.d, w.commit, w.read, w.reread, w.frozen, w.adopting = d, nil, Read{}, nil, false, true
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	shown := w.trace
	if *modelSeed == 0 {
		shown = w.trace[max(0, len(w.trace)-60):]
	}
	for _, line := range shown {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) notef(format string, args ...any) {
	if len(w.trace) > 1000 && *modelSeed == 0 {
		w.trace = slices.Delete(w.trace, 0, 900)
	}
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// step does one random thing, lets the dispatcher go on, and checks.
func (w *world) step() {
	w.act()
	w.pump()
}

func (w *world) pump() {
	w.take(w.d.Step(w.now))
	if len(w.d.survivors)+len(w.d.changed) == 0 && w.commit == nil && w.d.state.Epoch == w.log.state.Epoch && w.d.state.Ver == w.log.state.Ver {
		w.rolled = false
	}
	w.checkIdle()
	w.checkBounds()
}

func (w *world) act() {
	switch x := w.r.IntN(100); {
	case x < 12:
		w.put(1 + w.r.IntN(5))
	case x < 36:
		w.answerCommit()
	case x < 50:
		w.answerReads()
	case x < 72:
		w.work()
	case x < 78:
		w.now = w.now.Add(time.Duration(w.r.IntN(60)) * time.Millisecond)
	case x < 79:
		w.now = w.now.Add(time.Duration(w.r.IntN(2500)) * time.Millisecond)
	case x < 82:
		w.join()
	case x < 86:
		w.fate()
	case x < 88:
		w.dishonest()
	case x < 90:
		w.cancel()
	case x < 92:
		w.report()
	default:
		w.rare()
	}
}

func (w *world) rare() {
	switch w.r.IntN(40) {
	case 0, 1:
		w.takeOver("takeover")
	case 2:
		if w.r.IntN(3) == 0 {
			w.rollBack()
		}
	case 3:
		w.old = w.log.clone()
	case 4, 5:
		w.cfg.Paused = w.r.IntN(4) == 0
		w.d.Configure(w.cfg)
	case 6:
		w.trim(w.r.IntN(4))
	case 7:
		w.d.Release()
	case 8, 9:
		if w.frozen = !w.frozen; w.frozen {
			w.d.Freeze(w.now)
		} else {
			w.d.Thaw(w.now)
		}
	case 10:
		if k := w.someone(); k != nil {
			w.d.Bind(k.cfg.ID)
		}
	default:
		if k := w.someone(); k != nil && k.cfg.Remote && k.attached {
			w.d.Take(k.cfg.ID, 1+w.r.IntN(3), 300)
		}
	}
}

func (w *world) put(n int) {
	for range n {
		e := qlog.Entry{Body: make([]byte, w.r.IntN(120)), ProducedAt: w.now}
		if w.r.IntN(4) > 0 {
			e.Key = fmt.Sprint("k", w.r.IntN(6))
		}
		switch w.r.IntN(40) {
		case 0:
			e.Only = "other"
		case 1:
			e.Unreadable = errors.New("garbage")
		case 2:
			e.TTL = time.Duration(1+w.r.IntN(500)) * time.Millisecond
		case 3:
			e.MaxAttempts = 1 + w.r.IntN(4)
		case 4:
			e.Body = make([]byte, 600)
		}
		id := w.log.put(qlog.ID(w.now.UnixMicro()), e)
		w.notef("put %d key %s", id, e.Key)
	}
	w.d.Seen(w.log.last)
}

// answerCommit applies the commit under way, and answers it unless the answer is lost.
func (w *world) answerCommit() {
	if w.commit == nil || w.frozen && w.r.IntN(4) > 0 {
		return
	}
	answer, err := w.log.commit(w.commit)
	switch {
	case err != nil:
		w.notef("commit %d: %v", w.commit.Ver, err)
		w.takeOver(err.Error())
	case w.r.IntN(5) > 0:
		w.notef("commit %d answered", w.commit.Ver)
		w.commit = nil
		w.d.Committed(w.now, answer)
	default:
		w.notef("commit %d applied, answer lost", w.commit.Ver)
	}
}

func (w *world) answerReads() {
	if w.read.N > 0 && w.r.IntN(3) > 0 {
		after, n := w.read.After, w.read.N
		w.read = Read{}
		if w.r.IntN(8) == 0 {
			w.d.ReadFailed()
		} else if err := w.d.Entries(w.now, w.log.read(after, min(n, 1+w.r.IntN(30)))); err != nil {
			w.takeOver(err.Error())
			return
		}
	}
	if w.reread != nil && w.r.IntN(3) > 0 {
		at := w.reread
		w.reread = nil
		if w.r.IntN(8) == 0 {
			w.d.RereadFailed()
		} else {
			w.d.Reread(w.log.reread(at))
		}
	}
}

func (w *world) someone() *worker {
	if len(w.workers) == 0 {
		return nil
	}
	return w.workers[w.r.IntN(len(w.workers))]
}

func (w *world) join() {
	if len(w.workers) >= 5 {
		return
	}
	w.born++
	k := &worker{attached: true, has: map[qlog.ID]*holding{}, cfg: Session{
		ID: fmt.Sprint("s", w.born), Concurrency: 1 + w.r.IntN(3), MaxInFlight: 4, MaxBytes: 300, ReportsBegun: w.r.IntN(3) > 0,
		Remote: w.r.IntN(6) == 0 && !w.cfg.Exclusive,
	}}
	if w.r.IntN(2) == 0 {
		k.cfg.MaxBytes = 1 << 20
	}
	w.workers = append(w.workers, k)
	w.d.Attach(k.cfg)
	w.notef("join %+v", k.cfg)
}

// fate does something to a worker's session.
func (w *world) fate() {
	k := w.someone()
	if k == nil {
		return
	}
	switch w.r.IntN(8) {
	case 0:
		w.notef("%s lost", k.cfg.ID)
		w.workers = slices.DeleteFunc(w.workers, func(o *worker) bool { return o == k })
		w.d.Lost(w.now, k.cfg.ID)
	case 1:
		w.notef("%s leaves", k.cfg.ID)
		w.d.Leave(w.now, k.cfg.ID)
		k.attached = false
		w.take(w.d.Step(w.now))
		for id, h := range k.has { // what is begun comes back
			w.settle(k, id, h, Release)
		}
		w.take(w.d.Step(w.now))
		w.workers = slices.DeleteFunc(w.workers, func(o *worker) bool { return o == k })
	case 2, 3:
		w.notef("%s detached", k.cfg.ID)
		k.attached = false
		w.d.Detach(k.cfg.ID)
	default:
		if !k.attached {
			w.notef("%s resumes", k.cfg.ID)
			k.attached = true
			w.d.Attach(k.cfg)
			w.present(k)
		}
	}
}

// present reports what a worker has.
func (w *world) present(k *worker) {
	for _, id := range sorted(k.has) {
		h := k.has[id]
		w.d.Held(w.now, Held{ID: id, Gen: h.gen, Session: k.cfg.ID, Begun: h.begun})
		if h.unanswered != nil {
			w.d.Settle(w.now, *h.unanswered)
		}
	}
}

// report tells the dispatcher, after a takeover, what all workers have, and ends the doubt.
func (w *world) report() {
	if !w.adopting {
		return
	}
	w.adopting = false
	for _, k := range w.workers {
		w.d.session(k.cfg.ID)
		if k.attached {
			w.d.Attach(k.cfg)
		}
		w.present(k)
	}
	// What the reports name and is not read yet must not be given up before it is.
	for w.d.Loading() {
		if w.read.N == 0 {
			w.take(w.d.Step(w.now))
		}
		if w.read.N > 0 {
			after := w.read.After
			w.read = Read{}
			if err := w.d.Entries(w.now, w.log.read(after, 20)); err != nil {
				w.takeOver(err.Error())
				return
			}
		} else {
			w.answerCommit()
		}
		if w.adopting {
			return
		}
	}
	w.d.NobodyHolds(w.now)
	w.notef("nobody else holds anything")
}

// work has a worker do something with one of its deliveries.
func (w *world) work() {
	k := w.someone()
	if k == nil || len(k.has) == 0 {
		return
	}
	ids := sorted(k.has)
	id := ids[w.r.IntN(len(ids))]
	h := k.has[id]
	switch x := w.r.IntN(20); {
	case h.unanswered != nil:
		if k.attached || w.r.IntN(2) == 0 {
			w.d.Settle(w.now, *h.unanswered) // a repeat
		}
	case !h.begun && x < 16:
		w.begin(k, id, h)
	case x < 10:
		w.settle(k, id, h, Ack)
	case x < 13:
		w.settle(k, id, h, Retry)
	case x < 14:
		w.settle(k, id, h, Release)
	case x < 15 && w.r.IntN(3) == 0:
		w.settle(k, id, h, DeadLetter)
	case x < 19:
		if !w.d.Extend(w.now, k.cfg.ID, Mark{id, h.gen}, 0) {
			delete(k.has, id)
		}
	}
}

func (w *world) begin(k *worker, id qlog.ID, h *holding) {
	h.begun = true
	w.begun[id]++
	if !w.d.Begun(w.now, k.cfg.ID, Mark{id, h.gen}) {
		w.notef("%s begins %d gen %d: lost", k.cfg.ID, id, h.gen)
		delete(k.has, id)
	}
}

func (w *world) settle(k *worker, id qlog.ID, h *holding, v Verdict) {
	if h.unanswered != nil {
		return
	}
	if !h.begun && v != Release {
		w.begin(k, id, h)
	}
	s := &Settlement{ID: id, Gen: h.gen, Session: k.cfg.ID, Verdict: v}
	if w.r.IntN(10) == 0 {
		s.Code = "fatal"
	}
	s.Token = asked{settlement: s}
	h.unanswered = s
	w.notef("%s settles %d gen %d verdict %d", k.cfg.ID, id, h.gen, v)
	w.d.Settle(w.now, *s)
}

// dishonest settles what is not the worker's.
func (w *world) dishonest() {
	k := w.someone()
	if k == nil || len(w.log.entries) == 0 {
		return
	}
	e := w.log.entries[w.r.IntN(len(w.log.entries))]
	gen := 1 + w.r.IntN(3)
	if w.d.Loading() || w.d.jobs[e.ID] != nil && w.d.jobs[e.ID].state == doubt {
		return // who has it is known from the reports, and those are trusted
	}
	if h := k.has[e.ID]; h != nil && h.gen == gen {
		gen++
	}
	s := &Settlement{ID: e.ID, Gen: gen, Session: k.cfg.ID, Verdict: Ack}
	if w.r.IntN(2) == 0 { // the right generation of another session
		for _, o := range w.workers {
			if h := o.has[e.ID]; h != nil && o != k {
				s.Gen = h.gen
			}
		}
	}
	s.Token = asked{settlement: s}
	w.d.Settle(w.now, *s)
}

func (w *world) cancel() {
	if len(w.log.entries) == 0 || w.r.IntN(3) > 0 {
		return
	}
	e := w.log.entries[w.r.IntN(len(w.log.entries))]
	w.notef("cancel %d", e.ID)
	w.cancelled[e.ID] = true
	w.d.Cancel(w.now, Cancellation{ID: e.ID, Key: e.Key, Token: asked{cancel: e.ID}})
}

func (w *world) trim(n int) {
	n = min(n, len(w.log.entries))
	w.notef("trim %d", n)
	w.log.entries = slices.Delete(w.log.entries, 0, n)
}

// takeOver starts a new dispatcher from what the log has. A late copy of a commit changes nothing.
func (w *world) takeOver(why string) {
	w.notef("takeover: %s", why)
	late, survivors := w.commit, w.d.Survivors()
	w.clean, w.cancelled = why == "released" && !w.rolled, map[qlog.ID]bool{}
	w.load()
	if w.rolled { // the same process goes on
		w.d.Restore(survivors)
	}
	if late != nil {
		if _, err := w.log.commit(late); !errors.Is(err, qlog.ErrFenced) {
			w.fatalf("a late commit of the earlier epoch: %v", err)
		}
	}
}

// rollBack makes the log forget what was written since the copy.
func (w *world) rollBack() {
	if w.adopting || len(w.d.early)+len(w.d.survivors) > 0 {
		return
	}
	w.notef("rollback")
	w.rolled = true
	epoch, newest := w.log.state.Epoch, w.log.newest
	w.log = w.old.clone()
	w.log.state.Epoch, w.log.newest = epoch, newest
	clear(w.accepted)
	for i := range w.log.entries { // one that had been cancelled comes again, after later ones
		if e := &w.log.entries[i]; e.ID < w.first[e.Key] {
			w.delivered[e.ID]++
		}
	}
	for _, k := range w.workers { // their settlements must be repeated; what was acked is unknown
		for id := range k.has {
			if w.log.find(id) == nil {
				delete(k.has, id)
			}
		}
	}
	if w.r.IntN(2) == 0 {
		w.takeOver("rollback")
	}
}

func sorted[V any](m map[qlog.ID]V) []qlog.ID {
	ids := make([]qlog.ID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
