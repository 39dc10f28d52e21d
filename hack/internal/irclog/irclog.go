// Package irclog reads lines of IRC logs, such as those of the irc-disentanglement corpus.
package irclog

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Parse splits `[09:56] <nick> text` and `[09:56]  * nick does something` into nick and text. It
// returns false for other lines. The text is UTF-8 without NUL and not blank: a blank one is
// replaced by the whole line.
func Parse(raw string) (from, content string, ok bool) {
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

// Encode returns s as printable ASCII without spaces, as ids must be. Distinct texts stay distinct.
func Encode(s string) string {
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
