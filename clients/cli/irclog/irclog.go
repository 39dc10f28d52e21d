// Package irclog reads logs of IRC channels in the form of the irc-disentanglement corpus, one line each:
//
//	[09:56] <nick> text
//	[09:56]  * nick does something
//	=== nick has joined the channel
//
// The last kind is a notice, which is no message.
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

// Suffix ends the names of the files that Files finds in a directory.
const Suffix = ".raw.txt"

// Kind is what a line is.
type Kind int

// The kinds of lines.
const (
	// Unknown is a line of no form that is known.
	Unknown Kind = iota
	Text
	Action
	Notice
	// Blank is a line that holds nothing.
	Blank
)

// Line is one line of a log.
type Line struct {
	// Number counts from 1.
	Number int
	Kind   Kind
	// Sender is the nick as an id: bytes that an id can't hold, and the percent sign, are percent-encoded.
	Sender string
	// Content is the text, or the whole raw line where that has no text but white space. It is valid UTF-8 without NUL.
	Content string
	// Repaired is true if the content held NUL or bytes that are not UTF-8: for each stands one U+FFFD.
	Repaired bool
	// Minute is the message's stamp, in minutes after midnight, or after noon: old logs have a 12-hour clock.
	Minute int
}

// IsMessage reports whether the line is a message.
func (l Line) IsMessage() bool { return l.Kind == Text || l.Kind == Action }

var (
	textForm   = regexp.MustCompile(`(?s)^\[\d\d:\d\d\] <([^>]+)>(.*)$`)
	actionForm = regexp.MustCompile(`(?s)^\[\d\d:\d\d\]  \* ([^ ]+)(.*)$`)
)

// Parse reads one line, without its end.
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

// EncodeID gives s as an id: printable ASCII without spaces.
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

// repair puts U+FFFD for NUL and for each byte that is not part of valid UTF-8.
func repair(content []byte) (string, bool) {
	if utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
		return string(content), false
	}
	// Converting to runes gives one U+FFFD for each invalid byte.
	return strings.ReplaceAll(string([]rune(string(content))), "\x00", "\uFFFD"), true
}

// Files gives the log files at path in the order of their names: those in a directory whose names end with Suffix, or
// path itself where it is a file.
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

// Read gives all lines of a file, in order. It holds the file in memory.
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
