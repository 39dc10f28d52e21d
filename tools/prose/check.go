package main

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	maxWords   = 40  // of a sentence
	maxColumns = 100 // of a line of a comment; a tab is one column
)

// A finding is one text to change.
type finding struct {
	line          int
	rule, message string
}

// A checker holds the compiled rules. It is safe for concurrent use.
type checker struct {
	rules    []rule
	patterns []*regexp.Regexp
}

// newChecker returns a checker of rules. It panics on a pattern that is no regular expression.
func newChecker(rules []rule) checker {
	c := checker{rules: rules}
	for _, r := range rules {
		pattern := `(?i)\b(?:` + strings.ReplaceAll(r.pattern, " ", `\s+`) + `)\b`
		c.patterns = append(c.patterns, regexp.MustCompile(pattern))
	}
	return c
}

// block returns the findings in b, not sorted.
func (c checker) block(b *block) []finding {
	var found []finding
	add := func(from, to int, rule, message string) {
		found = append(found, finding{b.line(from), rule, fmt.Sprintf("%q: %s", b.source[from:to], message)})
	}
	for i, r := range c.rules {
		for _, at := range c.patterns[i].FindAllStringIndex(b.text, -1) {
			text := b.text[at[0]:at[1]]
			if r.verb && (b.verb == 0 || at[0] != b.verb) || exception(r.name, text, b.text[at[1]:]) {
				continue
			}
			add(at[0], at[1], r.name, "write "+r.message)
		}
	}
	all := words(b.text)
	first := 0
	for i, w := range all {
		if i > 0 && all[i-1].joined && repeats(all[i-1].text, w.text, i-1 == first) {
			add(all[i-1].offset, w.offset+len(w.text), "twice", "write it once; quote names in backquotes")
		}
		if !w.last {
			continue
		}
		if n := i + 1 - first; n > maxWords {
			add(all[first].offset, all[first+2].offset+len(all[first+2].text), "long",
				fmt.Sprintf("the sentence has %d words; write sentences of at most %d", n, maxWords))
		}
		first = i + 1
	}
	return found
}

// repeats reports whether b is the word a again. A capitalized name such as Admit does not count as
// the word admit, unless it is the first of a sentence.
func repeats(a, b string, first bool) bool {
	return letters.MatchString(b) && (a == b || first && strings.ToLower(a) == b)
}

var (
	letters = regexp.MustCompile(`^\p{L}+$`)
	// thirdPerson matches verbs of the third person, auxiliaries, and words that may precede a verb.
	thirdPerson = regexp.MustCompile(`(?i)^([a-z]+s|[a-z]+ly|are|have|may|must|can|cannot|will|also|never|then|and|or)$`)
	// creates matches the verb in the sense of create: its object has one or two words.
	creates = regexp.MustCompile(`(?i)^makes\s+(a|an|one|new)\s+\S+?(\s+\S+?)?(\s+(of|for|with|from|that|in|on|to)\b|[.,;:]|$)`)
	// idiom matches phrases that are right although a rule finds them.
	idiom = regexp.MustCompile(`(?i)^(gives\s+(up|way)\b|makes\s+[a-z]+\s+([a-z]+\s+)?(call|attempt|request)s?\b)`)
)

// exception reports whether a text is right although it matches a rule's pattern. after is the text
// that follows it.
func exception(rule, text, after string) bool {
	next, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	switch rule {
	case "third-person":
		return thirdPerson.MatchString(text)
	case "gives":
		return idiom.MatchString(text + after)
	case "first-verb":
		return idiom.MatchString(text+after) || strings.EqualFold(text, "makes") && !creates.MatchString(text+after)
	case "for-good":
		return next == "reason" || next == "reasons" || next == "measure"
	}
	return false
}

// columns returns a finding for each line of a comment that is too long. A directive and a line
// with an address may be longer.
func columns(src string) []finding {
	var found []finding
	for i, line := range strings.Split(src, "\n") {
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "//") && !strings.HasPrefix(trimmed, "* ") && !strings.HasPrefix(trimmed, "/*") {
			continue
		}
		if n := len([]rune(line)); n > maxColumns && !strings.Contains(line, "://") && !directive.MatchString(trimmed) {
			found = append(found, finding{i + 1, "columns", fmt.Sprintf("wrap it at %d columns; it has %d", maxColumns, n)})
		}
	}
	return found
}
