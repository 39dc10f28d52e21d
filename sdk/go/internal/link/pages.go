package link

import "iter"

// Pages iterates over a list in pages. load returns the page for a token, and the token of the next
// page. The first page has the empty token; an empty next token ends the list. If load fails, the
// iteration ends with its error.
func Pages[T any](load func(token string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for token := ""; ; {
			items, next, err := load(token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}
