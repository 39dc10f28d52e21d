package channel

import "context"

// EraseStore is the part of a store of channels that erases users.
type EraseStore interface {
	// Forget removes up to limit records of the user as a former member, with their cursors. It also
	// removes the user as creator from up to limit channels, together with the title, and with the key
	// and the digest of the call that created the channel. It returns how many it found; 0 means that
	// only memberships are left. Remove the user from their channels first, and wait until every node
	// has read the change (see Store.Changes).
	//
	// A later Advance with an older message of the user makes them a follower again.
	Forget(ctx context.Context, userID string, limit int) (n int, err error)
}
