package link

import "iter"

// Pages iterates over a list in pages. load returns the page of a token, and the token of the next
// page; the token of the first page is empty, and so is the token after the last page. An error is
// the last thing that it yields.
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
