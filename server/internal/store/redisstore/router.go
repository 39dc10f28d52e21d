package redisstore

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

var (
	_ message.Cache    = Router{}
	_ feed.CacheWriter = Router{}
)

// Texts are the texts of open messages. It is safe for concurrent use.
type Texts interface {
	// Drop deletes the texts of messages of a session.
	Drop(ctx context.Context, channelID string, msgIDs ...string) error
}

// Router is the cache of all channels: one of sessions, and one of all others. It also drops the
// texts of messages that are no longer open. It is safe for concurrent use if its parts are.
type Router struct {
	Channels, Sessions *Cache
	// OpenTexts may be nil.
	OpenTexts Texts
}

// of returns the cache of a channel.
func (r Router) of(channelID string) *Cache {
	if ident.IsSession(channelID) {
		return r.Sessions
	}
	return r.Channels
}

// Limits implements feed.CacheWriter.
func (r Router) Limits(channelID string) (messages, bytes int) {
	return r.of(channelID).Limits(channelID)
}

// Page implements message.Cache.
func (r Router) Page(ctx context.Context, channelID string, rg message.Range) (message.CachedPage, error) {
	return r.of(channelID).Page(ctx, channelID, rg)
}

// Append implements feed.CacheWriter.
func (r Router) Append(ctx context.Context, runs []feed.ChannelChanges) ([]int, error) {
	done := make([]int, len(runs))
	for _, cache := range []*Cache{r.Channels, r.Sessions} {
		var part []feed.ChannelChanges
		var at []int
		for i := range runs {
			if r.of(runs[i].ChannelID) == cache {
				part, at = append(part, runs[i]), append(at, i)
			}
		}
		if len(part) == 0 {
			continue
		}
		applied, err := cache.Append(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, n := range applied {
			done[at[i]] = n
		}
	}
	return done, r.dropEnded(ctx, runs)
}

// dropEnded drops the texts of the messages of sessions that changes have closed or recalled.
func (r Router) dropEnded(ctx context.Context, runs []feed.ChannelChanges) error {
	if r.OpenTexts == nil {
		return nil
	}
	for i := range runs {
		if !ident.IsSession(runs[i].ChannelID) {
			continue
		}
		var ended []string
		for j := range runs[i].Changes {
			if c := &runs[i].Changes[j]; !c.Sent && c.Message.Status != message.StatusOpen && c.Message.Status != message.StatusEdited {
				ended = append(ended, c.Message.MsgID)
			}
		}
		if len(ended) == 0 {
			continue
		}
		if err := r.OpenTexts.Drop(ctx, runs[i].ChannelID, ended...); err != nil {
			return err
		}
	}
	return nil
}

// Now implements feed.CacheWriter.
func (r Router) Now(ctx context.Context, channelID string) (time.Time, error) {
	return r.of(channelID).Now(ctx, channelID)
}

// Replace implements feed.CacheWriter.
func (r Router) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	return r.of(channelID).Replace(ctx, channelID, began, log)
}

// Drop implements feed.CacheWriter. It keeps the texts of open messages: a builder drops what it is
// about to replace.
func (r Router) Drop(ctx context.Context, channelID string) error {
	return r.of(channelID).Drop(ctx, channelID)
}
