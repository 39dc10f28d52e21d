package main

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/hack/internal/irclog"
	parley "github.com/parleyhq/parley/sdk/go"
)

// fate is how an answer ends.
type fate int

const (
	// completed means that the generator closes the answer with the whole text.
	completed fate = iota
	// cancelled means that the owner cancels the answer while it is generated.
	cancelled
	// abandoned means that the generator dies.
	abandoned
)

// cancelledPercent and abandonedPercent are the percentages of the answers.
const cancelledPercent, abandonedPercent = 20, 5

// session is the session of a nick on a day.
type session struct {
	id, owner string
	channel   string // of the session
	// asked is set while messages of the nick have no answer, while the logs are read.
	asked bool
	// tail is closed when the last append that was begun is acknowledged. Only the day's goroutine
	// uses it.
	tail chan struct{}
	// follow starts the following of the session, once it exists.
	follow sync.Once
}

// step is a message of a session: a line of its nick, or the answer that a line is.
type step struct {
	at      time.Duration // after the beginning of the day, in the time of the log
	session *session
	id      string // the client_msg_id
	content string
	answer  *answer // nil for a line of the nick
}

// day is the replay of a log.
type day struct {
	file  string
	name  string
	steps []step
	span  time.Duration
}

// script is what is replayed.
type script struct {
	days     []*day
	sessions []*session
	answers  int
}

// mixed orders days so that about as much happens at any time: the longest, the shortest, the
// second longest and so on. Shorter days have shorter silences. Days of middle length come last.
func mixed(days []*day) []*day {
	slices.SortStableFunc(days, func(a, b *day) int { return int(b.span - a.span) })
	order := make([]*day, 0, len(days))
	for first, last := 0, len(days)-1; first <= last; first, last = first+1, last-1 {
		if order = append(order, days[first]); first < last {
			order = append(order, days[last])
		}
	}
	return order
}

// readScript reads the logs of a directory. Silences are shortened to quiet.
func readScript(dir string, days int, quiet time.Duration, seed uint64) (*script, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.raw.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no logs in %s: no file name ends in .raw.txt", dir)
	}
	if days > 0 {
		paths = paths[:min(days, len(paths))]
	}
	s := new(script)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r := &dayReader{script: s, quiet: quiet, seed: seed, byNick: make(map[string]*session)}
		r.day.file = filepath.Base(path)
		r.day.name, _, _ = strings.Cut(r.day.file, ".")
		r.read(string(data))
		s.days = append(s.days, &r.day)
	}
	s.days = mixed(s.days)
	return s, nil
}

// dayReader reads a log.
type dayReader struct {
	*script

	quiet  time.Duration
	seed   uint64
	day    day
	byNick map[string]*session
	// minute is that of the last line, first the first step in it, and at its time in the replay.
	minute int
	first  int
	at     time.Duration
}

func (r *dayReader) read(data string) {
	r.minute = -1
	for i, raw := range strings.Split(data, "\n") {
		raw = strings.TrimSuffix(raw, "\r")
		from, content, ok := irclog.Parse(raw)
		if !ok {
			continue
		}
		r.clock(raw)
		id := fmt.Sprintf("%s:%d", r.day.name, i+1)
		if s := r.byNick[addressee(content)]; s != nil && s.asked && addressee(content) != from {
			s.asked = false
			r.answers++
			r.day.steps = append(r.day.steps, step{session: s, id: id, content: content, answer: newAnswer(r.seed, s, id, content)})
		}
		s := r.byNick[from]
		if s == nil {
			s = newSession(r.day.name, from)
			r.byNick[from] = s
			r.sessions = append(r.sessions, s)
		}
		s.asked = true
		r.day.steps = append(r.day.steps, step{session: s, id: id, content: content})
	}
	r.spread(time.Minute)
	r.day.span = r.at
}

// addressee returns the nick that a line addresses: what is before its first colon or comma.
func addressee(content string) string {
	return content[:max(0, strings.IndexAny(content, ":,"))]
}

// clock takes the time of a line. The lines of a minute are spread over it.
func (r *dayReader) clock(raw string) {
	var hour, minute int
	if _, err := fmt.Sscanf(raw, "[%02d:%02d]", &hour, &minute); err != nil {
		return
	}
	now := 60*hour + minute
	if now == r.minute {
		return
	}
	if r.minute >= 0 {
		r.spread(min(r.quiet, time.Duration((now-r.minute+24*60)%(24*60))*time.Minute))
	}
	r.minute = now
}

// spread sets the times of the steps of the last minute, and moves the clock on.
func (r *dayReader) spread(gap time.Duration) {
	steps := r.day.steps[r.first:]
	for i := range steps {
		steps[i].at = r.at + time.Minute*time.Duration(i)/time.Duration(len(steps))
	}
	r.first = len(r.day.steps)
	r.at += gap
}

func newSession(day, nick string) *session {
	var id strings.Builder
	id.WriteString(day + "-")
	for _, c := range []byte(nick) {
		if c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			id.WriteByte(c)
		} else {
			fmt.Fprintf(&id, "_%02x", c)
		}
	}
	s := &session{id: id.String(), owner: irclog.Encode(nick), tail: make(chan struct{})}
	s.channel = new(parley.Client).Session(s.id).ChannelID()
	close(s.tail)
	return s
}

// chance returns a number that depends on the seed and what it is for.
func chance(seed uint64, what, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, seed))
	_, _ = h.Write([]byte(what + "\x00" + id))
	n := h.Sum64()
	// The low bits of FNV depend little on the early bytes.
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}
