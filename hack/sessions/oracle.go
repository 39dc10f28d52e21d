package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// want is a message that a session must have in the end.
type want struct {
	id, text string
	answer   bool
}

// oracle is what the sessions must have in the end, as far as the logs say: by session id, in
// order. It does not use the code that reads the logs for the replay, because a check must not
// share its mistakes.
type oracle struct {
	sessions map[string][]want
	owners   map[string]string
}

// spoken matches a line of a nick: `[09:56] <nick> text` and `[09:56]  * nick does something`.
var spoken = regexp.MustCompile(`(?s)^\[..:..\] (?:<([^>]+)> ?(.*)| \* ([^ ]+) ?(.*))$`)

// unsafe matches what an id cannot have.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9-]`)

// hidden matches what is escaped in the id of a user.
var hidden = regexp.MustCompile(`[^!-~]|%`)

func newOracle(paths []string) (*oracle, error) {
	o := &oracle{sessions: make(map[string][]want), owners: make(map[string]string)}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		day := path[strings.LastIndexByte(path, '/')+1:]
		day = day[:strings.IndexByte(day, '.')]
		o.read(day, data)
	}
	return o, nil
}

// read reads a log. waiting has the nicks with a message that has no answer.
func (o *oracle) read(day string, data []byte) {
	waiting := make(map[string]bool)
	for number, raw := range bytes.Split(data, []byte("\n")) {
		line := string(bytes.TrimSuffix(raw, []byte("\r")))
		m := spoken.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		nick, text := m[1]+m[3], m[2]+m[4]
		if strings.TrimSpace(text) == "" {
			text = line
		}
		text = strings.ReplaceAll(string([]rune(text)), "\x00", "\ufffd") // a byte that is not UTF-8 is a rune, U+FFFD
		w := want{id: fmt.Sprint(day, ":", number+1), text: text}
		named := strings.FieldsFunc("x"+text, func(r rune) bool { return r == ':' || r == ',' })[0][1:]
		if len(named) < len(text) && named != nick && waiting[named] {
			delete(waiting, named)
			o.add(day, named, want{id: w.id, text: text, answer: true})
		}
		waiting[nick] = true
		o.add(day, nick, w)
	}
}

func (o *oracle) add(day, nick string, w want) {
	id := day + "-" + escape(unsafe, nick, "_", "% x")
	o.sessions[id] = append(o.sessions[id], w)
	o.owners[id] = escape(hidden, nick, "%", "% X")
}

// escape replaces the bytes of each match with their hexadecimal numbers, each after a mark.
func escape(what *regexp.Regexp, text, mark, format string) string {
	return what.ReplaceAllStringFunc(text, func(s string) string {
		return mark + strings.ReplaceAll(fmt.Sprintf(format, s), " ", mark)
	})
}
