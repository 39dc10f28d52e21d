package revocation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

var errNoSecond = errors.New("the store was not heard")

// ask is Check for a token that is not known to be revoked while the store is not heard.
func (l *List) ask(ctx context.Context, p *ident.Principal) error {
	err := l.askSecond(ctx, p)
	if err == nil || fault.Is(err, fault.TokenRevoked) {
		return err
	}
	if !l.cfg.FailOpen {
		if l.refused != nil && ctx.Err() == nil {
			l.refused.Add(ctx, 1)
		}
		return unknown(err)
	}
	if l.opened != nil {
		l.opened.Add(ctx, 1)
	}
	now := int64(time.Since(l.began))
	if was := l.openedAt.Load(); (was == 0 || now-was >= int64(time.Second)) && l.openedAt.CompareAndSwap(was, now) {
		l.cfg.Logger.WarnContext(ctx, "tokens are admitted that may have been revoked", "error", err)
	}
	return nil
}

// askSecond returns a TOKEN_REVOKED fault if Second has an entry that revokes p's token, and
// another error if it cannot tell. Calls for one key and user share an answer for answerLife.
func (l *List) askSecond(ctx context.Context, p *ident.Principal) error {
	if l.cfg.Second == nil {
		return errNoSecond
	}
	name := p.Key + " " + p.Subject
	if was, ok := l.answers.get(name); ok {
		return was.err
	}
	asked := l.asks.DoChan(name, func() (_ any, err error) {
		began := time.Now()
		defer func() { l.answers.put(name, answer{began, err}) }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), secondWait)
		defer cancel()
		found, whole, err := l.cfg.Second.Find(ctx, p.Key, UserKey(p.Subject))
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			l.apply([]Entry{e}, false)
		}
		if !whole {
			return nil, errNotWhole
		}
		return nil, nil //nolint:nilnil // the answer is the error alone
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-asked:
		if l.knows(p) { // tokens of one key may have been issued before and after the revocation
			return Revoked()
		}
		return a.Err
	}
}

const (
	// answerLife is how long after the begin of a look-up its answer is used, so that a node under
	// load does not ask Redis with every call. It adds to the time in which other nodes refuse a
	// token.
	answerLife = 250 * time.Millisecond
	// maxAnswers bounds the answers in memory.
	maxAnswers = 10_000
)

// answer is what a look-up that began then said of tokens that memory does not refuse: nil, or why
// it cannot tell.
type answer struct {
	began time.Time
	err   error
}

// answers are the last answers of Second. The zero value is ready to use.
type answers struct {
	mu  sync.Mutex
	all map[string]answer
}

// get returns an answer that may still be used.
func (a *answers) get(name string) (was answer, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, ok = a.all[name]
	return was, ok && time.Since(was.began) < answerLife
}

// put adds an answer. If there are too many, it drops all others: they are old soon anyway.
func (a *answers) put(name string, next answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil || len(a.all) >= maxAnswers {
		a.all = make(map[string]answer)
	}
	a.all[name] = next
}

var errNotWhole = errors.New("the copy of the revocations in Redis is not complete")

// put copies an entry to Second. The keeper makes up for a failure.
func (l *List) put(ctx context.Context, e Entry) {
	if l.cfg.Second == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, secondWait)
	defer cancel()
	if err := l.cfg.Second.Put(ctx, []Entry{l.merged(e)}); err != nil {
		l.cfg.Logger.DebugContext(ctx, "copying a revocation to Redis failed", "error", err)
	}
}
