package revocation

import (
	"context"
	"errors"
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
// another error if it cannot tell. Concurrent calls for one key and user share a look-up.
func (l *List) askSecond(ctx context.Context, p *ident.Principal) error {
	if l.cfg.Second == nil {
		return errNoSecond
	}
	answer := l.asks.DoChan(p.Key+" "+p.Subject, func() (any, error) {
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
	case a := <-answer:
		if l.knows(p) { // tokens of one key may have been issued before and after the revocation
			return Revoked()
		}
		return a.Err
	}
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
