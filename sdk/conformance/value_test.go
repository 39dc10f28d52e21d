package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand replaces variables such as ${name} in a text. A text that is a single variable becomes its
// value, of any type.
func expand(text string, vars func(name string) (any, error)) (any, error) {
	if m := variable.FindStringSubmatch(text); m != nil && m[0] == text {
		return vars(m[1])
	}
	var failed error
	out := variable.ReplaceAllStringFunc(text, func(m string) string {
		v, err := vars(m[2 : len(m)-1])
		if err != nil {
			failed = err
		}
		return fmt.Sprint(v)
	})
	return out, failed
}

// lookup returns the value at a path in v, such as `results.0.receipt`. An empty path means v.
func lookup(v any, path string) (any, error) {
	if path == "" {
		return v, nil
	}
	head, rest, _ := strings.Cut(path, ".")
	switch in := v.(type) {
	case map[string]any:
		found, ok := in[head]
		if !ok {
			return nil, fmt.Errorf("there is no %q in %s", head, show(v))
		}
		return lookup(found, rest)
	case []any:
		i, err := strconv.Atoi(head)
		if err != nil || i < 0 || i >= len(in) {
			return nil, fmt.Errorf("there is no %q in %s", head, show(v))
		}
		return lookup(in[i], rest)
	default:
		return nil, fmt.Errorf("there is no %q in %s", head, show(v))
	}
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 2000 {
		return string(text[:2000]) + "…"
	}
	return string(text)
}

// match compares a value with the expected one. Maps may contain more than expected, lists may not.
// An absent field equals an empty one. A number also equals a text of it, as in protobuf's JSON.
func match(want, got any) error { return matchAt("", want, got) }

func matchAt(at string, want, got any) error {
	switch w := want.(type) {
	case pattern:
		return matchPattern(at, w, got)
	case map[string]any:
		in, ok := got.(map[string]any)
		if !ok && got != nil {
			return mismatch(at, want, got)
		}
		for key, item := range w {
			if err := matchAt(at+"."+key, item, in[key]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		in, ok := got.([]any)
		if !ok && got != nil || len(in) != len(w) {
			return mismatch(at, want, got)
		}
		for i, item := range w {
			if err := matchAt(fmt.Sprintf("%s[%d]", at, i), item, in[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if empty(want) && empty(got) {
		return nil
	}
	if equal(want, got) {
		return nil
	}
	return mismatch(at, want, got)
}

// equal reports whether two values that are no lists or maps are equal. Two texts are never
// compared as numbers: an id may look like one.
func equal(want, got any) bool {
	_, wantsText := want.(string)
	_, isText := got.(string)
	if a, ok := number(want); ok && (!wantsText || !isText) {
		b, ok := number(got)
		return ok && a == b
	}
	return want == got
}

// mismatchError is the error for a value that does not match. Any other error of a comparison is a
// mistake in the scenario.
type mismatchError struct{ text string }

// Error implements error.
func (e *mismatchError) Error() string { return e.text }

func mismatch(at string, want, got any) error {
	if p, ok := want.(pattern); ok {
		return &mismatchError{fmt.Sprintf("%s is %s, want %s %s", at, show(got), p.tag, show(p.arg))}
	}
	return &mismatchError{fmt.Sprintf("%s is %s, want %s", at, show(got), show(want))}
}

// matches reports whether a value matches. It returns an error only if a pattern is invalid.
func matches(at string, want, got any) (bool, error) {
	err := matchAt(at, want, got)
	if isMismatch(err) {
		return false, nil
	}
	return err == nil, err
}

func isMismatch(err error) bool {
	var m *mismatchError
	return errors.As(err, &m)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	n, ok := number(v)
	return ok && n == 0
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(v, 64)
		return n, err == nil
	}
	return 0, false
}

// between reports whether a value is a number from low to high, both inclusive; a nil bound means
// none. An absent value is 0.
func between(got, low, high any) bool {
	n, ok := number(got)
	a, lowOK := number(low)
	b, highOK := number(high)
	return (ok || got == nil) && (low == nil || lowOK && a <= n) && (high == nil || highOK && n <= b)
}

func matchPattern(at string, p pattern, got any) error {
	var ok bool
	var err error
	switch p.tag {
	case "!any":
		ok = !empty(got)
	case "!none":
		ok = empty(got)
	case "!min":
		ok = between(got, p.arg, nil)
	case "!max":
		ok = between(got, nil, p.arg)
	case "!between":
		bounds, _ := p.arg.([]any)
		ok = len(bounds) == 2 && between(got, bounds[0], bounds[1])
	case "!match":
		var re *regexp.Regexp
		if re, err = regexp.Compile(fmt.Sprint(p.arg)); err == nil {
			text, isText := got.(string)
			ok = isText && re.MatchString(text)
		}
	case "!not":
		ok, err = matches(at, p.arg, got)
		ok = !ok
	case "!len":
		list, _ := got.([]any)
		ok = between(len(list), p.arg, p.arg)
	case "!sub":
		ok, err = subsequence(p.arg, got)
	default:
		err = fmt.Errorf("unknown pattern %s", p.tag)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if !ok {
		return mismatch(at, p, got)
	}
	return nil
}

// subsequence reports whether got, a list, contains the items of want in their order, possibly with
// others between them.
func subsequence(want, got any) (bool, error) {
	wanted, _ := want.([]any)
	list, _ := got.([]any)
	for _, item := range list {
		if len(wanted) == 0 {
			break
		}
		ok, err := matches("", wanted[0], item)
		if err != nil {
			return false, err
		}
		if ok {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0, nil
}
