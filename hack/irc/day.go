package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// day is one log file. It is read without the importer's code, because a check must not share its
// mistakes.
type day struct {
	path, channel string
	lines         []line
}

// line is a message as it must be stored: its client_msg_id, sender and content.
type line struct {
	id, from, content string
}

func readDays(dir string) ([]day, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.raw.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no logs in %s: no file name ends in .raw.txt", dir)
	}
	var days []day
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		d := day{path: path, channel: "day-" + strings.NewReplacer(".", "-").Replace(strings.TrimSuffix(name, ".raw.txt"))}
		for i, raw := range strings.Split(string(data), "\n") {
			if from, content, ok := parse(strings.TrimSuffix(raw, "\r")); ok {
				d.lines = append(d.lines, line{
					id: encode(fmt.Sprintf("%s:%d", name, i+1)), from: encode(from), content: content,
				})
			}
		}
		days = append(days, d)
	}
	return days, nil
}

// parse splits `[09:56] <nick> text` and `[09:56]  * nick does something` into nick and text. It
// returns false for other lines.
func parse(raw string) (from, content string, ok bool) {
	if len(raw) < 8 || raw[0] != '[' || raw[3] != ':' || raw[6] != ']' || raw[7] != ' ' {
		return "", "", false
	}
	rest := raw[8:]
	if tail, is := strings.CutPrefix(rest, "<"); is {
		if from, content, ok = strings.Cut(tail, ">"); !ok || from == "" {
			return "", "", false
		}
	} else {
		tail, is := strings.CutPrefix(rest, " * ")
		if !is || tail == "" || tail[0] == ' ' {
			return "", "", false
		}
		from, content = tail, ""
		if at := strings.IndexByte(tail, ' '); at >= 0 {
			from, content = tail[:at], tail[at:]
		}
	}
	content = strings.TrimPrefix(content, " ")
	if strings.TrimSpace(content) == "" {
		content = raw
	}
	return from, clean(content), true
}

// clean replaces each byte that is not UTF-8, and NUL, with U+FFFD.
func clean(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == 0 {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

func encode(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
