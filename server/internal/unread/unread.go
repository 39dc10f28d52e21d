// Package unread bounds the memory that waits for clients: the bytes of responses and of live
// events that a connection has not taken yet. A client decides how fast it reads, and with HTTP/2
// it can hold back each stream alone, so without such a bound a few connections could fill a node's
// memory.
package unread

import "sync"

// Budget bounds the bytes that wait for each subject's clients, and for all clients of the node. It
// is safe for concurrent use.
type Budget struct {
	perSubject, total int64

	mu       sync.Mutex // guards the fields below
	taken    int64
	subjects map[string]int64 // without subjects that have taken nothing
}

// New creates a budget of perSubject bytes for each subject and total bytes for all. Both must be
// positive.
func New(perSubject, total int64) *Budget {
	return &Budget{perSubject: perSubject, total: total, subjects: map[string]int64{}}
}

// Take takes n bytes for a subject. It takes nothing and returns false if the subject or the node
// then had more than seven eighths of its budget. But a subject that has taken nothing may take
// more than its own budget, so that one large response is never impossible. Return returns the
// bytes.
func (b *Budget) Take(subject string, n int64) bool {
	return b.take(subject, n, b.perSubject-b.perSubject/8, b.total-b.total/8)
}

// TakeSmall is Take for what is small: it may take the last eighth of each budget too. So a subject
// whose large responses wait can still send.
func (b *Budget) TakeSmall(subject string, n int64) bool {
	return b.take(subject, n, b.perSubject, b.total)
}

func (b *Budget) take(subject string, n, perSubject, total int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := b.subjects[subject]
	if b.taken+n > total || has > 0 && has+n > perSubject {
		return false
	}
	b.taken += n
	b.subjects[subject] = has + n
	return true
}

// Return returns n bytes that were taken for a subject.
func (b *Budget) Return(subject string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.subjects[subject] -= n; b.subjects[subject] <= 0 {
		delete(b.subjects, subject)
	}
}

// Taken returns the bytes that are taken now, for all subjects.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// Limits returns the bytes that a subject and all subjects may take.
func (b *Budget) Limits() (perSubject, total int64) { return b.perSubject, b.total }
