package presence

// restore begins to write the parts of a shard's users in a new epoch, without logging those that
// have not changed since. It returns true if there are none.
func (cs *connections) restore(shard int, epoch string) (done bool) {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.restoring, sh.restored = epoch, ""
	for _, u := range sh.users {
		if u.epoch != epoch && (u.written != 0 || !u.sure) {
			cs.unsure(shard, u, u.cause)
		}
	}
	return sh.restoredIn(epoch)
}

// restoredIn reports once that all parts have been written in the epoch that the shard is restored
// in. The shard's mutex must be held.
func (sh *connShard) restoredIn(epoch string) bool {
	if sh.restoring == "" || sh.restoring != epoch {
		return false
	}
	for _, u := range sh.users {
		if u.epoch != epoch && (u.written != 0 || !u.sure) {
			return false
		}
	}
	sh.restoring, sh.restored = "", epoch
	return true
}

// restoredEpoch returns the epoch in which all parts of a shard have been written; empty if they
// have not.
func (cs *connections) restoredEpoch(shard int) string {
	sh := &cs.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.restored
}
