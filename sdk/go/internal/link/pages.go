package link

import "iter"

// Pages iterates over a list that comes in pages, of which load gives one and the token of the next; an empty token is the first
// page's, and after the last. An error is the last thing that it yields.
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
