package main

import (
	"regexp"
	"strings"
)

var (
	fence    = regexp.MustCompile("^\\s*(```+|~~~+)")
	heading  = regexp.MustCompile(`^#{1,6}\s`)
	divider  = regexp.MustCompile(`^[-|:= ]+$`)
	linkEnds = regexp.MustCompile(`\]\([^()]*\)`)
)

// markdown returns the blocks of a document, without code blocks and the targets of links.
func markdown(src string) []block {
	var (
		b     blocks
		fence = fencer{}
	)
	for i, text := range strings.Split(src, "\n") {
		text = linkEnds.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
		marker := item.FindString(text)
		trimmed := strings.TrimSpace(text)
		switch {
		case fence.inside(text) || trimmed == "" || divider.MatchString(trimmed) || strings.HasPrefix(trimmed, "<!--"):
			b.end()
		case b.open.source == "" && (strings.HasPrefix(text, "    ") || strings.HasPrefix(text, "\t")):
			// An indented code block.
		case heading.MatchString(text):
			b.end()
			b.add(i+1, strings.TrimLeft(text, "# "))
			b.end()
		case strings.HasPrefix(trimmed, "|"):
			b.row(i+1, trimmed)
		case marker != "":
			b.end()
			b.add(i+1, strings.TrimSpace(text[len(marker):]))
		default:
			b.add(i+1, trimmed)
		}
	}
	b.end()
	return b.done
}

// A fencer tracks whether a line of Markdown is in a fenced code block.
type fencer struct{ open string }

// inside reports whether line is a fence or in a fenced code block. It must be called for each line
// in order.
func (f *fencer) inside(line string) bool {
	found := fence.FindStringSubmatch(line)
	switch {
	case found == nil:
		return f.open != ""
	case f.open == "":
		f.open = found[1]
	case strings.HasPrefix(found[1], f.open):
		f.open = ""
	}
	return true
}
