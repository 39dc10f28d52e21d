package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/clients/cli/irclog"
)

// act is what a user does at one moment.
type act int

// The acts. A user who joins while online reconnects: the log has no line for the quit. signsOut is
// a disconnect that also revokes the tokens of the user's login.
const (
	connects act = iota + 1
	reconnects
	disconnects
	signsOut
)

// event is an act of a user, as the log reports it. at counts from the moment at which the first
// day begins.
type event struct {
	at   time.Duration
	user string
	act  act
}

// day is one log, read as presence. Its users are all who are ever online in it, each once.
type day struct {
	channel string
	users   []string
	events  []event
	// minutes is the time from the first message to the last one.
	minutes int
}

// replay is all days. The days are in parallel and end together, so that all users who stay until
// the end of their day are online at once.
type replay struct {
	days   []day
	events []event // of all days, ordered by time
	// minutes is the length of the longest day. All events are before the minute after it.
	minutes int
}

var (
	joinForm   = regexp.MustCompile(`^=== (.+?) +\[.*\]  has joined #`)
	partForm   = regexp.MustCompile(`^=== (.+?) +\[.*\]  has left #`)
	renameForm = regexp.MustCompile(`^=== (.+?) is now known as (.+)$`)
)

// channelOf returns the channel of a user's day.
func channelOf(user string) string {
	name, _, _ := strings.Cut(user, "/")
	return "day-" + name
}

// endDays makes those who leave for the last time before their log ends sign out, if they are of
// the half that does.
func (r *replay) endDays(seed uint64) {
	last := make(map[string]int)
	for i, e := range r.events {
		last[e.user] = i
	}
	for user, i := range last {
		if r.events[i].act == disconnects && signsOutAtTheEnd(seed, user) {
			r.events[i].act = signsOut
		}
	}
}

// readReplay reads the logs in a directory as presence. A user is `<day>/<nick>`, with the nick
// encoded as `parley import` encodes it. A join, the first word and the new name of a rename
// connect a user; while online, a join and a new name reconnect. A part and the old name of a
// rename disconnect. A notice has no time: it has that of the last message before it.
func readReplay(dir string) (*replay, error) {
	paths, err := irclog.Files(dir)
	if err != nil {
		return nil, err
	}
	r := new(replay)
	seen := make(map[string]bool)
	for _, path := range paths {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		if seen[name] {
			return nil, fmt.Errorf("%s has two logs of the day %s", dir, name)
		}
		seen[name] = true
		d, err := readDay(path, name)
		if err != nil {
			return nil, err
		}
		r.days = append(r.days, d)
		r.minutes = max(r.minutes, d.minutes)
	}
	for _, d := range r.days {
		for _, e := range d.events {
			e.at += time.Duration(r.minutes-d.minutes) * time.Minute
			r.events = append(r.events, e)
		}
	}
	slices.SortStableFunc(r.events, func(a, b event) int { return int(a.at - b.at) })
	return r, nil
}

func readDay(path, name string) (day, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return day{}, fmt.Errorf("read log: %w", err)
	}
	lines := bytes.Split(data, []byte("\n"))
	var messages []irclog.Line
	for i, raw := range lines {
		lines[i] = bytes.TrimSuffix(raw, []byte("\r"))
		if l := irclog.Parse(i+1, lines[i]); l.IsMessage() {
			messages = append(messages, l)
		}
	}
	offsets := irclog.Offsets(messages)
	r := &dayReader{day: day{channel: channelOf(name)}, name: name, online: make(map[string]bool), known: make(map[string]bool)}
	next := 0
	for i, raw := range lines {
		if next < len(messages) && messages[next].Number == i+1 {
			r.now = offsets[next]
			r.minutes = int(r.now / time.Minute)
			r.speak(messages[next].Sender)
			next++
			continue
		}
		r.notice(raw)
	}
	return r.day, nil
}

// dayReader reads one log from its first line to its last one.
type dayReader struct {
	day

	name          string
	now           time.Duration
	online, known map[string]bool
}

func (r *dayReader) speak(nick string) {
	if !r.online[r.id(nick)] {
		r.up(nick)
	}
}

func (r *dayReader) notice(raw []byte) {
	if m := renameForm.FindSubmatch(raw); m != nil {
		r.down(irclog.EncodeID(string(m[1])))
		r.up(irclog.EncodeID(string(m[2])))
		return
	}
	if m := joinForm.FindSubmatch(raw); m != nil {
		r.up(irclog.EncodeID(string(m[1])))
		return
	}
	if m := partForm.FindSubmatch(raw); m != nil {
		r.down(irclog.EncodeID(string(m[1])))
	}
}

// id returns the user of an encoded nick.
func (r *dayReader) id(nick string) string { return r.name + "/" + nick }

func (r *dayReader) up(nick string) {
	user := r.id(nick)
	if !r.known[user] {
		r.known[user] = true
		r.users = append(r.users, user)
	}
	what := connects
	if r.online[user] {
		what = reconnects
	}
	r.online[user] = true
	r.events = append(r.events, event{r.now, user, what})
}

func (r *dayReader) down(nick string) {
	user := r.id(nick)
	if !r.online[user] {
		return // the log begins after the join
	}
	delete(r.online, user)
	r.events = append(r.events, event{r.now, user, disconnects})
}

// transitions returns the number of times that a user connects or disconnects in events. A
// reconnect is both.
func transitions(events []event) (n int) {
	for _, e := range events {
		if n++; e.act == reconnects {
			n++
		}
	}
	return n
}

// checkpoints returns the last minutes of n parts of the replay with about the same number of
// transitions each. The last one is the end.
func (r *replay) checkpoints(n int) []int {
	total, done := transitions(r.events), 0
	var ends []int
	for _, e := range r.events {
		for len(ends) < n-1 && done*n >= total*(len(ends)+1) {
			ends = append(ends, int(e.at/time.Minute))
		}
		done += transitions([]event{e})
	}
	for len(ends) < n {
		ends = append(ends, r.minutes)
	}
	return ends
}
