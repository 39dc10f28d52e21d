// Package irclog reads logs of IRC channels in the format of the irc-disentanglement corpus. The
// lines have these forms:
//
//	[09:56] <nick> text
//	[09:56]  * nick does something
//	=== nick has joined the channel
//
// The last form is a notice, which is not a message.
package irclog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Suffix is the suffix of the log files that Files finds in a directory.
const Suffix = ".raw.txt"

// Kind is the kind of a line.
type Kind int

// The kinds of lines.
const (
	// Unknown is a line of an unknown form.
	Unknown Kind = iota
	Text
	Action
	Notice
	// Blank is an empty line, or one with only white space.
	Blank
)

// Line is one line of a log.
type Line struct {
	// Number is the line's number, from 1.
	Number int
	Kind   Kind
	// Sender is the nick, encoded as an id: percent signs and bytes that an id cannot contain are
	// percent-encoded.
	Sender string
	// Content is the text, or the whole raw line if the text is empty or only white space. It is
	// valid UTF-8 without NUL.
	Content string
	// Repaired is true if the content contained NUL or bytes that are not UTF-8. Each is replaced
	// by U+FFFD.
	Repaired bool
	// Minute is the message's time in minutes after midnight, or after noon in old logs with a
	// 12-hour clock.
	Minute int
}

// IsMessage reports whether the line is a message.
func (l Line) IsMessage() bool { return l.Kind == Text || l.Kind == Action }

var (
	textForm   = regexp.MustCompile(`(?s)^\[\d\d:\d\d\] <([^>]+)>(.*)$`)
	actionForm = regexp.MustCompile(`(?s)^\[\d\d:\d\d\]  \* ([^ ]+)(.*)$`)
)

// Parse parses one line, without its line ending.
func Parse(number int, raw []byte) Line {
	line := Line{Number: number}
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		line.Kind = Blank
		return line
	case bytes.HasPrefix(raw, []byte("===")):
		line.Kind = Notice
		return line
	}
	parts := textForm.FindSubmatch(raw)
	line.Kind = Text
	if parts == nil {
		parts = actionForm.FindSubmatch(raw)
		line.Kind = Action
	}
	if parts == nil {
		line.Kind = Unknown
		return line
	}
	line.Minute = 60*digits(raw[1:3]) + digits(raw[4:6])
	line.Sender = EncodeID(string(parts[1]))
	content := bytes.TrimPrefix(parts[2], []byte(" "))
	if len(bytes.TrimSpace(content)) == 0 {
		content = raw
	}
	line.Content, line.Repaired = repair(content)
	return line
}

func digits(two []byte) int { return 10*int(two[0]-'0') + int(two[1]-'0') }

// EncodeID encodes s as an id: printable ASCII without spaces.
func EncodeID(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// repair replaces NUL and each byte that is not part of valid UTF-8 with U+FFFD. It reports whether
// it replaced anything.
func repair(content []byte) (string, bool) {
	if utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
		return string(content), false
	}
	// The conversion to runes creates one U+FFFD for each invalid byte.
	return strings.ReplaceAll(string([]rune(string(content))), "\x00", "\uFFFD"), true
}

// Files returns the log files at path, ordered by name: those in a directory whose names end with
// Suffix, or path itself if it is a file. A directory without log files is an error.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find logs: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	// ReadDir sorts by name.
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("find logs: %w", err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Suffix) && e.Type()&fs.ModeDir == 0 {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, errors.New("find logs: no file in " + path + " has a name that ends with " + Suffix)
	}
	return files, nil
}

// Read returns all lines of a file, in order. It holds the file in memory.
func Read(path string) ([]Line, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	var lines []Line
	for raw := range bytes.Lines(data) {
		raw = bytes.TrimSuffix(raw, []byte("\n"))
		raw = bytes.TrimSuffix(raw, []byte("\r"))
		lines = append(lines, Parse(len(lines)+1, raw))
	}
	return lines, nil
}
