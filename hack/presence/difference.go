package main

import (
	"fmt"
	"strings"
)

// examples is the number of differences that are printed.
const examples = 4

// difference collects differences, and keeps the first of them as text.
type difference struct {
	n     int
	first []string
}

func (d *difference) addf(format string, args ...any) {
	if d.n++; len(d.first) < examples {
		d.first = append(d.first, fmt.Sprintf(format, args...))
	}
}

// String returns "" if there is no difference.
func (d *difference) String() string {
	if d.n == 0 {
		return ""
	}
	text := strings.Join(d.first, "; ")
	if d.n > len(d.first) {
		text += "; …"
	}
	return fmt.Sprintf("%d differences: %s", d.n, text)
}

// compare adds the differences between states, by user, and who is online.
func (d *difference) compare(states map[string]string, online map[string]bool) {
	for id, state := range states {
		if want := wanted(online[id]); state != want {
			d.addf("%s is %q, not %q", id, state, want)
		}
	}
	for id := range online {
		if _, ok := states[id]; !ok {
			d.addf("%s is missing", id)
		}
	}
}

// wanted returns the state of a user who is online, or of one who is offline.
func wanted(online bool) string {
	if online {
		return shown
	}
	return ""
}
