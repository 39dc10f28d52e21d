package channel

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// maxShared bounds the memberships of a user that Strangers compares with those of others.
	maxShared = 2000
	// sharedReads bounds the concurrent reads of one call of Strangers.
	sharedReads = 8
)

// Strangers returns those of the users with whom userID shares no members-only channel, in the
// order given. It reads the first 2,000 memberships of userID, ordered by channel id, and for each
// other user at most one lookup for every 500 of these that are of members-only channels. A user is
// no stranger to themselves. The error is Unavailable if the memberships cannot be read.
func (a *Access) Strangers(ctx context.Context, userID string, others []string) (strangers []string, err error) {
	mine, err := a.membersOnlyOf(ctx, userID)
	if err != nil {
		return nil, err
	}
	shares := make([]bool, len(others))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sharedReads)
	for i, other := range others {
		if other == userID {
			shares[i] = true
			continue
		}
		group.Go(func() (err error) {
			shares[i], err = a.inAny(ctx, other, mine)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, other := range others {
		if !shares[i] {
			strangers = append(strangers, other)
		}
	}
	return strangers, nil
}

// membersOnlyOf returns the members-only channels among the first maxShared memberships of a user.
func (a *Access) membersOnlyOf(ctx context.Context, userID string) ([]string, error) {
	var ids []string
	for after := ""; len(ids) < maxShared; {
		page, err := a.cfg.Store.Memberships(ctx, userID, after, maxKeys)
		if err != nil {
			return nil, message.Unavailable(err)
		}
		page = beforeSessions(page) // a session has one member
		for i := range page {
			if after = page[i].ChannelID; page[i].IsMember() {
				ids = append(ids, after)
			}
		}
		if len(page) < maxKeys {
			break
		}
	}
	return a.filterMembersOnly(ctx, ids)
}

// inAny reports whether a user is a member of any of the channels.
func (a *Access) inAny(ctx context.Context, userID string, channelIDs []string) (bool, error) {
	for len(channelIDs) > 0 {
		n := min(len(channelIDs), maxKeys)
		members, err := a.cfg.Store.MembersOf(ctx, userID, channelIDs[:n])
		if err != nil {
			return false, message.Unavailable(err)
		}
		for _, m := range members {
			if m.IsMember() {
				return true, nil
			}
		}
		channelIDs = channelIDs[n:]
	}
	return false, nil
}
