package main

import (
	"regexp"
	"strings"
)

// slash returns the blocks of the comments in TypeScript code or a proto. It relies on the
// formatters: a block comment begins on a line of its own, or as {/* in JSX. It returns none for
// generated code.
func slash(src string) []block {
	if strings.Contains(src, "@generated") {
		return nil
	}
	var (
		b     blocks
		line  int
		lines []string
		open  bool // within /* */
	)
	flush := func() {
		b.comment(line, lines)
		lines = nil
	}
	add := func(at int, text string) {
		if lines == nil {
			line = at
		}
		lines = append(lines, text)
	}
	for i, text := range strings.Split(src, "\n") {
		trimmed := strings.TrimSpace(text)
		if opens := blockComment.FindString(trimmed); !open && opens != "" {
			flush()
			open = true
			trimmed = trimmed[len(opens):]
		}
		rest, isLine := strings.CutPrefix(trimmed, "//")
		switch {
		case open:
			before, _, ends := strings.Cut(trimmed, "*/")
			if before != "" || !ends {
				add(i+1, strings.TrimPrefix(strings.TrimPrefix(before, "*"), " "))
			}
			if open = !ends; ends {
				flush()
			}
		case isLine:
			add(i+1, strings.TrimPrefix(rest, " "))
		default:
			flush()
			if at := trailing(text); at >= 0 {
				b.comment(i+1, []string{strings.TrimSpace(text[at:])})
			}
		}
	}
	flush()
	return b.done
}

// blockComment matches the beginning of a block comment at the beginning of a line.
var blockComment = regexp.MustCompile(`^\{?/\*+`)

// trailing returns the offset of the text of a // comment that follows code in a line, or -1 if
// there is none.
func trailing(line string) int {
	at := 0
	for {
		next := strings.Index(line[at:], " // ")
		if next < 0 {
			return -1
		}
		code := line[:at+next]
		at += next + len(" // ")
		if strings.Count(code, `"`)%2 == 0 && strings.Count(code, `'`)%2 == 0 && strings.Count(code, "`")%2 == 0 {
			return at
		}
	}
}
