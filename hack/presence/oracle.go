package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// oracle answers who is online, from the files. It shares no code with the replay, because a check
// must not share its mistakes.
type oracle struct {
	logs []oracleLog
	// minutes is the length of the longest log.
	minutes int
}

type oracleLog struct {
	day     string
	lines   []oracleLine
	minutes int
}

// oracleLine is a line that matters: the user who leaves and the user who comes, in this order, and
// the minute of the log.
type oracleLine struct {
	minute        int
	leaves, comes string
	speaks        bool
}

func newOracle(dir string) (*oracle, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.raw.txt"))
	if err != nil {
		return nil, err
	}
	o := new(oracle)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		base := filepath.Base(path)
		l := oracleLog{day: base[:strings.IndexByte(base, '.')]}
		last := -1
		for raw := range strings.SplitSeq(string(data), "\n") {
			raw = strings.TrimSuffix(raw, "\r")
			if clock, nick := spoken(raw); nick != "" {
				if last >= 0 {
					// The clock of some logs has only 12 hours.
					l.minutes += (clock - last + 1440) % 720
				}
				last = clock
				l.lines = append(l.lines, oracleLine{minute: l.minutes, comes: l.user(nick), speaks: true})
				continue
			}
			if from, to := moved(raw); from != "" || to != "" {
				l.lines = append(l.lines, oracleLine{minute: l.minutes, leaves: l.user(from), comes: l.user(to)})
			}
		}
		o.logs = append(o.logs, l)
		o.minutes = max(o.minutes, l.minutes)
	}
	return o, nil
}

// spoken returns the minute of the day and the nick of a message. The nick of another line is "".
func spoken(raw string) (clock int, nick string) {
	if len(raw) < 8 || raw[0] != '[' || raw[3] != ':' || raw[6] != ']' || raw[7] != ' ' {
		return 0, ""
	}
	var hour, minute int
	if _, err := fmt.Sscanf(raw[1:6], "%2d:%2d", &hour, &minute); err != nil {
		return 0, ""
	}
	rest := raw[8:]
	switch {
	case strings.HasPrefix(rest, "<"):
		end := strings.IndexByte(rest, '>')
		if end < 0 {
			return 0, ""
		}
		nick = rest[1:end]
	case strings.HasPrefix(rest, " * "):
		nick, _, _ = strings.Cut(rest[3:], " ")
	}
	return 60*hour + minute, nick
}

// moved returns the nick that leaves and the nick that comes in a notice. Each may be "".
func moved(raw string) (from, to string) {
	rest, ok := strings.CutPrefix(raw, "=== ")
	if !ok {
		return "", ""
	}
	if from, to, ok = strings.Cut(rest, " is now known as "); ok {
		return from, to
	}
	at := strings.Index(rest, " [")
	if at <= 0 {
		return "", ""
	}
	nick := strings.TrimRight(rest[:at], " ")
	switch {
	case strings.Contains(rest[at:], "]  has joined #"):
		return "", nick
	case strings.Contains(rest[at:], "]  has left #"):
		return nick, ""
	default:
		return "", ""
	}
}

// count is what the files have in total.
type count struct {
	// transitions counts connects and disconnects, without those at the ends of the files; a
	// reconnect is one of each. most is the most users online at once, mostADay those of one day.
	users, transitions, most, mostADay int
}

func (c count) String() string {
	return fmt.Sprintf("%d users, %d transitions, at most %d online at once and %d of a day",
		c.users, c.transitions, c.most, c.mostADay)
}

// online returns who is online after all lines of a minute. The logs end together, at the minute
// o.minutes.
func (o *oracle) online(minute int) map[string]bool {
	all := make(map[string]bool)
	for _, l := range o.logs {
		l.walk(minute-(o.minutes-l.minutes), func(_ int, user string, online bool) {
			if online {
				all[user] = true
			} else {
				delete(all, user)
			}
		})
	}
	return all
}

// signedOut returns who has signed out after all lines of a minute: those of the half that does so
// who are offline from then until their log ends.
func (o *oracle) signedOut(seed uint64, minute int) map[string]bool {
	all := make(map[string]bool)
	for _, l := range o.logs {
		last := make(map[string]int) // the minutes of the last transitions
		end := make(map[string]bool)
		l.walk(l.minutes, func(at int, user string, online bool) {
			last[user], end[user] = at, online
		})
		for user, at := range last {
			if !end[user] && at <= minute-(o.minutes-l.minutes) && signsOutAtTheEnd(seed, user) {
				all[user] = true
			}
		}
	}
	return all
}

// walk calls move for each connect and disconnect until the end of a minute of the log.
func (l *oracleLog) walk(last int, move func(minute int, user string, online bool)) {
	online := make(map[string]bool)
	for _, line := range l.lines {
		if line.minute > last {
			return
		}
		if online[line.leaves] {
			delete(online, line.leaves)
			move(line.minute, line.leaves, false)
		}
		if line.comes == "" {
			continue
		}
		if online[line.comes] {
			if line.speaks {
				continue
			}
			move(line.minute, line.comes, false)
		}
		online[line.comes] = true
		move(line.minute, line.comes, true)
	}
}

// user returns `<day>/<nick>`, in which bytes that an id cannot contain are percent-encoded. For no
// nick it returns "".
func (l *oracleLog) user(nick string) string {
	if nick == "" {
		return ""
	}
	id := []byte(l.day + "/")
	for i := range len(nick) {
		if c := nick[i]; c < '!' || c > '~' || c == '%' {
			id = fmt.Appendf(id, "%%%02X", c)
		} else {
			id = append(id, c)
		}
	}
	return string(id)
}

// count counts over all logs.
func (o *oracle) count() (c count) {
	users := make(map[string]bool)
	change := make([]int, o.minutes+1)
	for _, l := range o.logs {
		now := 0
		l.walk(l.minutes, func(minute int, user string, online bool) {
			users[user] = true
			c.transitions++
			step := -1
			if online {
				step = 1
			}
			now += step
			change[minute+o.minutes-l.minutes] += step
			c.mostADay = max(c.mostADay, now)
		})
	}
	now := 0
	for _, step := range change {
		now += step
		c.most = max(c.most, now)
	}
	c.users = len(users)
	return c
}
