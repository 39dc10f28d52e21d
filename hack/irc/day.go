package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/hack/internal/irclog"
)

const (
	// edits is how often each line is edited.
	edits = 5
	// recallEvery is the distance of the lines that are recalled.
	recallEvery = 10
	// lateEvery is the distance of the pairs of lines whose last edit and recall come after all other
	// lines are complete.
	lateEvery = 20
	// extraEvery is the distance of the lines whose changes are repeated.
	extraEvery = 50
)

// version is a state of a message: 0 as it was sent, 1 to edits after that edit, or recalled.
type version int8

const recalled version = 100

// line is a message as it must be stored: its client_msg_id, sender and content.
type line struct {
	id, from, content string
	channel           int
}

// text returns the content of the message in a version.
func (l *line) text(v version) string {
	switch v {
	case 0:
		return l.content
	case recalled:
		return ""
	default:
		return fmt.Sprintf("%s (edited %d)", l.content, v)
	}
}

// opID returns the client_msg_id of the send, edit or recall that makes a version.
func (l *line) opID(v version) string {
	switch v {
	case 0:
		return l.id
	case recalled:
		return l.id + "/recall"
	default:
		return l.id + "/edit" + strconv.Itoa(int(v))
	}
}

// day is one log file: the lines from first up to, and without, end.
type day struct {
	channel, first, end int
}

// days are the logs of a directory.
type days struct {
	channels []string
	days     []day
	lines    []line
	byID     map[string]int32 // the index of a line by its id
}

// yearsPerChannel is the number of years whose days are in one channel. Each of the three channels
// of the corpus gets more than its retention keeps.
const yearsPerChannel = 3

// readDays reads the logs in a directory. It does not use the importer's code, because a check must
// not share its mistakes.
func readDays(dir string) (*days, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.raw.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no logs in %s: no file name ends in .raw.txt", dir)
	}
	all, byName, first := &days{byID: make(map[string]int32)}, make(map[string]int), 0
	for _, path := range paths {
		name := filepath.Base(path)
		year, err := strconv.Atoi(name[:min(4, len(name))])
		if err != nil {
			return nil, fmt.Errorf("%s: the name does not begin with a year", name)
		}
		if first == 0 {
			first = year
		}
		from := year - (year-first)%yearsPerChannel
		channel := fmt.Sprintf("ubuntu-%d-%d", from, from+yearsPerChannel-1)
		if _, ok := byName[channel]; !ok {
			byName[channel] = len(all.channels)
			all.channels = append(all.channels, channel)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all.add(name, byName[channel], string(data))
	}
	return all, nil
}

// add adds a log file.
func (a *days) add(name string, channel int, data string) {
	d := day{channel: channel, first: len(a.lines)}
	for i, raw := range strings.Split(data, "\n") {
		if from, content, ok := irclog.Parse(strings.TrimSuffix(raw, "\r")); ok {
			a.addLine(line{
				id: irclog.Encode(fmt.Sprintf("%s:%d", name, i+1)), from: irclog.Encode(from), content: content, channel: channel,
			})
		}
	}
	d.end = len(a.lines)
	a.days = append(a.days, d)
}

// addLine adds a line and returns its index.
func (a *days) addLine(l line) int32 {
	i := int32(len(a.lines)) //nolint:gosec // far fewer
	a.byID[l.id] = i
	a.lines = append(a.lines, l)
	return i
}
