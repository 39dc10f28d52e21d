package redispresence

import (
	"strings"

	"github.com/parleyhq/parley/server/internal/presence"
)

// formatState returns a state as text. See the package comment.
func formatState(s presence.State) string {
	var text [2 * int(presence.MaxPlatform)]byte
	n := 0
	for p, background := range s.All {
		flag := byte('f')
		if background {
			flag = 'b'
		}
		text[n], text[n+1] = '0'+byte(p), flag
		n += 2
	}
	return string(text[:n])
}

// parseState is the inverse of formatState. It accepts platforms in any order, and returns false
// for text that is not a state.
func parseState(text string) (s presence.State, ok bool) {
	if len(text)%2 != 0 {
		return 0, false
	}
	for i := 0; i < len(text); i += 2 {
		p := presence.Platform(text[i] - '0')
		if !p.Valid() || text[i+1] != 'f' && text[i+1] != 'b' {
			return 0, false
		}
		s = s.With(p, text[i+1] == 'b')
	}
	return s, true
}

// union returns the state that follows from members of a user's key. Like presence_set, it ignores
// a member that it cannot read, until the member expires.
func union(members []string) (s presence.State) {
	for _, m := range members {
		_, text, _ := strings.Cut(m, " ")
		part, ok := parseState(text)
		if !ok {
			continue
		}
		for p, background := range part.All {
			s = s.With(p, background)
		}
	}
	return s
}
