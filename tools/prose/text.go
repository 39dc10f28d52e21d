package main

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A block is one paragraph, list item, heading, table cell or string literal.
type block struct {
	// source is the block as written, on one line. text is the same with code and addresses
	// overwritten by hidden, byte for byte: offsets are the same, and a rule sees one word in
	// their place.
	source, text string

	lines []lineAt // ascending by offset; the first has offset 0
	// verb is the offset of the verb of a function's doc comment; 0 for every other block.
	verb int
}

// A lineAt is the offset in a block at which a line of the file begins, and that line's number.
type lineAt struct{ offset, line int }

// line returns the number of the line in the file that contains the text at offset.
func (b *block) line(offset int) int {
	line := 0
	for _, l := range b.lines {
		if l.offset <= offset {
			line = l.line
		}
	}
	return line
}

const hidden = "\x00"

// hides matches text that no rule checks: code in backquotes, addresses and HTML tags.
var hides = regexp.MustCompile("``[^`]+``|`[^`]*`|[a-z]+://[^\\s)>\\]]*[^\\s)>\\].,;:]|</?[a-zA-Z][^<>]*>|<!--.*?-->")

// hide returns text with everything that hides matches overwritten, byte for byte.
func hide(text string) string {
	return hides.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(hidden, len(s)) })
}

// A blocks collects the blocks of a file from its lines.
type blocks struct {
	done []block
	open block
}

// add appends a line to the open block, after a space.
func (b *blocks) add(line int, text string) {
	if b.open.source != "" {
		b.open.source += " "
	}
	b.open.lines = append(b.open.lines, lineAt{len(b.open.source), line})
	b.open.source += text
}

// end closes the open block.
func (b *blocks) end() {
	if strings.TrimSpace(b.open.source) != "" {
		b.open.text = hide(b.open.source)
		b.done = append(b.done, b.open)
	}
	b.open = block{}
}

// row adds each cell of a table's row as a block.
func (b *blocks) row(line int, text string) {
	b.end()
	start := 0
	for i, r := range hide(text) + "|" {
		if r == '|' {
			b.add(line, strings.TrimSpace(text[start:i]))
			b.end()
			start = i + 1
		}
	}
}

// item matches the marker of a list item and the spaces around it.
var item = regexp.MustCompile(`^\s*([-*+•]|\d+[.)])\s+`)

// comment adds the blocks of a comment that begins in a line of the file. lines are without
// comment markers. As in `go doc`, an indented line outside of a list is code.
func (b *blocks) comment(line int, lines []string) {
	listed := false
	for i, text := range lines {
		marker := item.FindString(text)
		switch {
		case strings.TrimSpace(text) == "":
			b.end()
			listed = false
		case strings.HasPrefix(strings.TrimSpace(text), "|"):
			b.row(line+i, strings.TrimSpace(text))
		case marker != "" && !strings.HasPrefix(text, "\t"):
			b.end()
			b.add(line+i, strings.TrimSpace(text[len(marker):]))
			listed = true
		case !listed && (strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "  ")):
			b.end()
		default:
			b.add(line+i, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "# ")))
		}
	}
	b.end()
}

// A word is one word of a text, without punctuation, and where it begins.
type word struct {
	text   string
	offset int
	// last is set if the word ends a sentence.
	last bool
	// joined is set if nothing but white space is between the word and the next one.
	joined bool
}

// ends matches a word that ends a sentence, with what may follow the stop.
var ends = regexp.MustCompile(`[.!?][)\]"'”’*_]*$`)

// abbreviation matches a word with a stop that ends no sentence.
var abbreviation = regexp.MustCompile(`^\W*(e\.g|i\.e|cf|vs|approx|resp)\.$`)

// words returns the words of text. A word is separated by white space and contains a letter, a
// digit or hidden code.
func words(text string) []word {
	var all []word
	isWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == rune(hidden[0]) }
	for i := 0; i < len(text); {
		rest := text[i:]
		length := strings.IndexFunc(rest, unicode.IsSpace)
		if length == 0 {
			_, size := utf8.DecodeRuneInString(rest)
			i += size
			continue
		}
		if length < 0 {
			length = len(rest)
		}
		field := rest[:length]
		if from := strings.IndexFunc(field, isWord); from >= 0 {
			bare := strings.TrimRightFunc(field[from:], func(r rune) bool { return !isWord(r) })
			if from > 0 && len(all) > 0 {
				all[len(all)-1].joined = false
			}
			all = append(all, word{
				text: bare, offset: i + from, last: ends.MatchString(field) && !abbreviation.MatchString(field), joined: from+len(bare) == len(field),
			})
		} else if len(all) > 0 {
			all[len(all)-1].joined = false
		}
		i += length
	}
	if len(all) > 0 {
		all[len(all)-1].last = true
	}
	return all
}
