package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The bounds of a dispatcher, beside those of Config.
const (
	// MaxUncharged is how many deliveries of a message may end uncharged before they are charged.
	MaxUncharged = 8
	// DefaultMaxOpen and DefaultMaxBytes bound the look-ahead.
	DefaultMaxOpen  = 1_000_000
	DefaultMaxBytes = 16 << 20

	// maxFollowers is how many entries of a lane keep their payload while they wait for others.
	maxFollowers = 32
	// maxAhead is how many ordinals may lie between Sent and what was read before Sent follows.
	maxAhead = 512
	// maxPinned is how many settled entries may lie behind an open one before they are deleted.
	maxPinned = 256
	// maxChunks bounds the chunks of one commit: each may have 6 KiB of text.
	maxChunks = 128
	// firstPage is the size of the first page, while the sizes of messages are not known.
	firstPage = 16
	// prefetchBelow is the mean time of a handler below which its session gets more than it has idle
	// handlers.
	prefetchBelow = 50 * time.Millisecond
	// rowAfter is how long a delivery is begun before it gets a row.
	rowAfter = time.Second
)

// Codes of failures that no worker reports.
const (
	CodeLost       = "session_lost"
	CodeAckTimeout = "ack_timeout"
	CodeMaxRunTime = "max_run_time"
	CodeReleased   = "released"
	CodeUnreadable = "unreadable"
)

const reasonLost = "its worker was lost"

// Config are the settings of the group, and the limits of the dispatcher.
type Config struct {
	Group string
	// Order cannot change while the dispatcher lives.
	Order     Order
	Exclusive bool
	// Paused: nothing is sent.
	Paused bool
	// MaxAttempts is how many charged attempts a message has that says nothing else.
	MaxAttempts            int
	MinBackoff, MaxBackoff time.Duration
	// NonRetryable are codes with which a failed attempt is the last.
	NonRetryable []string
	// AckTimeout is how long a delivery lasts unless it is extended, MaxRunTime how long in all from
	// when it is begun. Timeout is what workers are told that a handler may take.
	AckTimeout, Timeout, MaxRunTime time.Duration
	// DeleteSettled: the group is the only one, and the topic keeps no settled messages.
	DeleteSettled bool
	// MaxOpen and MaxBytes bound the entries and the payload in memory. 0 means the default.
	MaxOpen  int
	MaxBytes int64
	// Random returns a random number from 0 to n-1.
	Random func(n int64) int64
}

// mode is what the dispatcher is doing.
//
//	serving    sends messages                                       releasing (Release)
//	releasing  sends nothing; the last commit releases the lease    released.
//	released   does nothing
type mode uint8

const (
	serving mode = iota
	releasing
	released
)

// Dispatcher decides who works on the messages of one partition of one group. It is not safe for
// concurrent use.
type Dispatcher struct {
	cfg   Config
	final map[string]bool
	mode  mode
	out   Output

	// state has the marks and versions as of the latest commit that was built, but Ver, which is the
	// latest that was answered.
	state qlog.State
	// loaded is the mark Sent with which the dispatcher began.
	loaded qlog.Pos
	rows   map[qlog.ID]qlog.Row

	open  openSet
	jobs  map[qlog.ID]*job
	lanes map[uint64]*lane
	free  choice
	// timers are due times and expiries; deadlines are on the clock that stands still.
	timers, deadlines heap[*job]
	frozen            time.Time
	stood             time.Duration

	sessions map[string]*session
	roster   []*session
	asking   []*session
	turn     int
	// bound is the session of an exclusive partition, next the one that it is to be bound to.
	bound, next  *session
	prefetchFrom time.Time

	// read is the latest entry that was read, last the newest that is known to exist. wish is an ID up
	// to which to read because a cancellation named it. known is up to where all entries are known.
	read, last, readTo qlog.Pos
	wish, known        qlog.ID
	// reading: a page of up to readMax entries is being read; hinted: there may be more than is known.
	reading, hinted bool
	page, readMax   int
	largest         []int
	largestFrom     int64
	// rebased: the log uses ordinals again, the next entry has rebase + 1.
	rebased bool
	rebase  int64
	// bytes are those of the payloads that wait.
	bytes int64
	// asked are entries whose payload is to be read again, with their lanes: wanted, then rereading.
	asked             map[qlog.ID]*lane
	wanted, rereading []qlog.ID
	// early are statements about entries that are not read yet. abandoned: nobody holds entries in
	// doubt that are still to be read.
	early     map[qlog.ID][]claim
	survivors map[qlog.ID]Survivor
	abandoned bool

	// changed are the jobs whose state the next commits carry, in order; cover is the latest entry
	// that Sent must include for them.
	changed []*job
	cover   qlog.Pos
	add     qlog.Counters
	pinned  []qlog.Pos
	// commit is under way; leaving are the jobs that are sent, and owed the answers that are given
	// with its answer.
	commit  *qlog.Commit
	leaving []*job
	owed    []Answer
	// handing are the deliveries of the next Output, which are staged for their sessions until then.
	handing []handing
	// recent are settlements that were accepted, the newer ones first.
	recent      [2]map[qlog.ID]record
	recentSince time.Time
}

// New returns a dispatcher for the state that Acquire returned, with all chunks of open entries and
// all rows. It fails if a chunk cannot be read.
func New(cfg Config, state qlog.State, chunks map[int64]string, rows map[qlog.ID]qlog.Row, now time.Time) (*Dispatcher, error) {
	d := &Dispatcher{
		state: state, loaded: state.Sent, rows: rows, last: state.Last, read: state.Cursor,
		known: state.Cursor.ID, page: firstPage, largestFrom: state.Sent.Ord + 1, recentSince: now,
		open: openSet{chunks: map[int64]*chunk{}}, jobs: map[qlog.ID]*job{}, lanes: map[uint64]*lane{},
		sessions: map[string]*session{}, asked: map[qlog.ID]*lane{}, early: map[qlog.ID][]claim{},
		survivors: map[qlog.ID]Survivor{},
	}
	d.recent[0] = map[qlog.ID]record{}
	d.Configure(cfg)
	for number, text := range chunks {
		ordinals, err := qlog.ParseRanges(number, text)
		if err != nil {
			return nil, err
		}
		for _, ord := range ordinals {
			d.open.add(ord)
		}
	}
	if !d.Loading() {
		d.finishLoading()
	}
	return d, nil
}

// Configure changes the settings. Order stays.
func (d *Dispatcher) Configure(cfg Config) {
	if cfg.MaxOpen == 0 {
		cfg.MaxOpen = DefaultMaxOpen
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	d.cfg = cfg
	d.final = map[string]bool{}
	for _, code := range cfg.NonRetryable {
		d.final[code] = true
	}
}

// Output is what the holder does next.
type Output struct {
	// Commit is to be written, and repeated unchanged until its outcome is known; then Committed. Nil
	// if nothing is to be written, or the earlier commit is still under way.
	Commit *qlog.Commit
	// Deliveries are to be sent now.
	Deliveries []Delivery
	// Ended are deliveries that their sessions must drop.
	Ended []Ended
	// Settled are answers to settlements and cancellations, Held those to reports.
	Settled []Answer
	Held    []HeldAnswer
	// Read and Reread are to be read; at most one of each is under way. Entries or ReadFailed, Reread
	// or RereadFailed follow.
	Read   Read
	Reread []qlog.Pos
	// Spare is how many messages could be offered to other nodes.
	Spare int
	// InFlight is how many messages sessions have or are about to get.
	InFlight int
	// Tick is when Step must be called again if nothing else happens; zero for never.
	Tick time.Time
	// Released: the lease was given back, and the dispatcher is done.
	Released bool
}

// Step checks the time, assigns messages to sessions, and returns what the holder does next. Call it after
// reporting anything; several reports may share one Step.
func (d *Dispatcher) Step(now time.Time) Output {
	d.wake(now)
	d.look(now)
	d.fill(now)
	d.out.Commit = d.build()
	d.out.Read = d.planRead()
	d.out.Reread = d.planReread()
	d.out.Tick = d.tick(now)
	d.out.Released = d.mode == released
	for _, s := range d.roster {
		d.out.InFlight += len(s.held)
	}
	d.handOut()
	out := d.out
	d.out = Output{}
	return out
}

// handing is a delivery of so many bytes.
type handing struct {
	budget *Budget
	bytes  int64
}

// handOut notes that what is sent is not staged any more.
func (d *Dispatcher) handOut() {
	for _, h := range d.handing {
		h.budget.staged -= h.bytes
	}
	d.handing = d.handing[:0]
}

// wake moves entries that are due to their lanes, and ends those whose time to live is over.
func (d *Dispatcher) wake(now time.Time) {
	for {
		j := d.timers.top()
		if j == nil || j.when > now.UnixNano() {
			return
		}
		d.takeOut(j)
		if j.state == retrying {
			d.wait(j)
		} else {
			d.settle(j, expired)
		}
	}
}

// tick returns when something happens on its own.
func (d *Dispatcher) tick(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if j := d.timers.top(); j != nil {
		sooner(time.Unix(0, j.when))
	}
	if j := d.deadlines.top(); j != nil && d.frozen.IsZero() {
		sooner(time.Unix(0, j.when).Add(d.stood))
	}
	if now.Before(d.prefetchFrom) {
		sooner(d.prefetchFrom)
	}
	return at
}

// clock returns the time that stands still while commits fail.
func (d *Dispatcher) clock(now time.Time) time.Time {
	if !d.frozen.IsZero() {
		now = d.frozen
	}
	return now.Add(-d.stood)
}

// Freeze stops the deadlines of deliveries until Thaw: commits fail.
func (d *Dispatcher) Freeze(now time.Time) {
	if d.frozen.IsZero() {
		d.frozen = now
	}
}

// Thaw lets the deadlines go on.
func (d *Dispatcher) Thaw(now time.Time) {
	if !d.frozen.IsZero() {
		d.stood += now.Sub(d.frozen)
		d.frozen = time.Time{}
	}
}

// PrefetchFrom forbids prefetching until then, because another node may answer an offer.
func (d *Dispatcher) PrefetchFrom(t time.Time) { d.prefetchFrom = t }

// Bind asks for an exclusive partition to be bound to another session, once nothing of the present
// one is in flight.
func (d *Dispatcher) Bind(id string) { d.next = d.sessions[id] }

// Bound returns the session that an exclusive partition is bound to; empty for none.
func (d *Dispatcher) Bound() string {
	if d.bound == nil {
		return ""
	}
	return d.bound.ID
}

// Release stops sending messages, and releases the lease with the last commit, when no entry is in
// doubt any more. What sessions hold they keep, for the next holder: each of their deliveries gets a row.
func (d *Dispatcher) Release() {
	if d.mode != serving {
		return
	}
	d.mode = releasing
	for _, s := range d.roster {
		d.withdraw(s)
	}
	for _, j := range d.inOrder() {
		if j.held() && j.stored == 0 {
			d.touch(j)
		}
	}
}

// Releasing reports whether Release was called.
func (d *Dispatcher) Releasing() bool { return d.mode != serving }

// mayRelease reports whether the lease is to be released and the log has all that the next holder must
// know.
func (d *Dispatcher) mayRelease() bool {
	if d.mode != releasing || d.Loading() || len(d.changed)+len(d.survivors) > 0 {
		return false
	}
	for _, j := range d.jobs {
		if j.state == doubt {
			return false
		}
	}
	return true
}

// unsure reports whether an entry waits without a row that an earlier holder, which died, may have
// delivered. The next holder must know that, or it would give the entry the same gen again.
func (d *Dispatcher) unsure() bool {
	if d.state.Released {
		return false
	}
	for _, p := range d.open.order {
		if p.ID > d.loaded.ID {
			return false
		}
		if j := d.jobs[p.ID]; d.open.has(p.Ord) && (j == nil || j.stored == 0) {
			return true
		}
	}
	return false
}

// inOrder returns all jobs by ID.
func (d *Dispatcher) inOrder() []*job {
	return slices.SortedFunc(maps.Values(d.jobs), func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
}

// Close takes what the sessions hold out of their Budgets, because another holder counts it now. The
// Dispatcher must not be used any more.
func (d *Dispatcher) Close() {
	d.handOut()
	for _, s := range d.roster {
		for _, j := range s.held {
			s.Budget.count(j, -1)
		}
	}
}
