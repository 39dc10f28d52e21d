package config

import (
	"fmt"
	"regexp"
	"slices"
)

// itemKeys maps the lists whose items have keys to the names of these, whose values are strings.
var itemKeys = map[string][]string{
	"auth.hs256_secrets": {"id", "secret", "file"},
	"auth.jwks":          {"id", "url", "issuer", "audience"},
}

// printable matches a key that an error may contain. Anything else may be a secret that was written
// in place of a key.
var printable = regexp.MustCompile(`^[a-z0-9_]{1,20}$`)

// items reports whether a setting is a list of items that have only the given keys, with strings as
// values. It reports everything else to c.
func (c *checker) items(s setting, names []string) bool {
	list, ok := s.value.([]any)
	if !ok {
		c.checkf(false, s.source, "must be %s", form(s.key, nil))
		return false
	}
	before := len(c.errs)
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", s.source, i)
		fields, ok := item.(map[string]any)
		if !ok {
			c.checkf(false, at, "must be an item of %s", form(s.key, nil))
			continue
		}
		for name, value := range fields {
			where := at
			if printable.MatchString(name) {
				where += "." + name
			}
			if !slices.Contains(names, name) {
				c.checkf(false, where, "unknown key")
				continue
			}
			_, ok := value.(string)
			c.checkf(ok, where, "must be a string: quote a number")
		}
	}
	return len(c.errs) == before
}
