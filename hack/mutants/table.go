package main

import "github.com/parleyhq/parley/internal/mutation"

const (
	messageDir   = "server/internal/message"
	channelDir   = "server/internal/channel"
	fanoutDir    = "server/internal/fanout"
	retentionDir = "server/internal/retention"
	erasureDir   = "server/internal/erasure"
	mongoDir     = "server/internal/store/mongostore"
	revokedDir   = "server/internal/revocation"
	rpcDir       = "server/internal/rpc"
)

// edit returns the edits of a mutant that changes one place.
func edit(file, from, to string) []mutation.Edit {
	return []mutation.Edit{{File: file, Old: from, New: to}}
}

// mutants are defects in how data is read, expires, is deleted and erased, in who may see it, and
// in how tokens are revoked. Others are mutants of chaos/messages.
var mutants = []mutant{ //nolint:gochecknoglobals // a table
	// Retention.
	{
		name: "last-entry-swept", breaks: "the last entry of a log is deleted, so that its seq is used again",
		edits: edit(retentionDir+"/look.go", "end := min(stripped, l.row.Head-1)", "end := min(stripped, l.row.Head)"),
		pkg:   retentionDir, tests: "^TestLastEntryStays$",
	},
	{
		name: "strips-the-readable", breaks: "the first entry that may be read is stripped, before the boundary has passed it",
		edits: edit(retentionDir+"/look.go", "l.strip(ctx, l.done.Stripped, oldest);", "l.strip(ctx, l.done.Stripped, oldest+1);"),
		pkg:   retentionDir, tests: "^Test(Count|Grace|BoundaryAgreesWithTheModel)$",
	},
	{
		name: "no-grace", breaks: "entries are stripped as soon as the boundary has moved, under reads that know it from before",
		edits: edit(retentionDir+"/retention.go", "age < t.cfg.Grace {", "age < 0 {"),
		pkg:   retentionDir, tests: "^TestGrace$",
	},
	{
		name: "clock-of-the-node", breaks: "messages expire, and are forgotten, by the clock of the node",
		edits: edit("server/server.go", "Clock: s.clock.Store,", "Clock: func(context.Context) (time.Time, error) { return s.clock.now(), nil },"),
		pkg:   "server", tests: "^TestFastNodeExpiresNothingEarly$",
	},
	{
		name: "no-settings-revision", breaks: "the boundary is moved according to a policy that was replaced meanwhile",
		edits: edit(mongoDir+"/channeltrim.go", `filter := append(atRev(channelID, rev), bson.E{Key: "oldest", Value: before})`,
			`filter := bson.D{{Key: "_id", Value: channelID}, {Key: "oldest", Value: before}}`),
		pkg: mongoDir, tests: "^TestChannels$/^BoundaryMovesForwardOnly$",
	},
	{
		name: "unpublished-expires", breaks: "entries expire that were not published yet",
		edits: []mutation.Edit{
			{File: retentionDir + "/look.go", Old: "err := l.trim(ctx)\n", New: "if rest, err := t.cfg.Log.Entries(ctx, row.ChannelID, message.Range{After: row.Head, Limit: 1000}); err == nil {\n" +
				"\t\tfor i := range rest {\n\t\t\tl.row.Head, l.row.Count = rest[i].Seq, rest[i].Count\n\t\t}\n\t}\n\terr := l.trim(ctx)\n"},
		},
		pkg: retentionDir, tests: "^TestUnpublishedEntriesStay$",
	},
	{
		name: "expired-stay-cached", breaks: "the cache keeps the contents of expired messages",
		edits: edit(retentionDir+"/look.go", "	l.dropCached(ctx, oldest)\n	return l.inSteps(", "	return l.inSteps("),
		pkg:   retentionDir, tests: "^Test(Count|Grace|Pass)$",
	},
	{
		name: "stub-without-key", breaks: "a stripped entry has no client_msg_id, so that a repeat of it is stored again",
		edits: edit(mongoDir+"/trim.go", "			{Key: \"msg_type\", Value: \"\"},\n		}},\n		{Key: \"$unset\", Value: bson.D{\n",
			"			{Key: \"msg_type\", Value: \"\"},\n			{Key: \"client_msg_id\", Value: channelID},\n		}},\n		{Key: \"$unset\", Value: bson.D{\n"),
		pkg: mongoDir, tests: "^TestChannels$/^Stripped",
	},
	// Reading.
	{
		name: "hole-is-the-end", breaks: "a store that is behind is taken for the end of the log",
		edits: edit(messageDir+"/reader.go", "		return entries[0].Count == head.Count\n", "		return true\n"),
		pkg:   messageDir, tests: "^Test(LaggingStoreIsRetried|InvalidCacheIsNotServed|CostOfManyEdits|ReplayOfRandomLogs|ReplayWaitsForLaggingStore|MinSeq)$",
	},
	{
		name: "hole-in-a-page", breaks: "a page without some of its messages is returned",
		edits: edit(messageDir+"/reader.go", "if step := entries[i].Count - entries[i-1].Count; step != 1 && !rg.Desc || step != -1 && rg.Desc {",
			"if step := entries[i].Count - entries[i-1].Count; step == 0 {"),
		pkg: messageDir, tests: "^Test",
	},
	{
		name: "no-read-at-the-goal", breaks: "a store that is behind is read before it has the entries up to the goal",
		edits: edit(messageDir+"/reader.go", "		case !reached:\n", "		case !reached && reach < 0:\n"),
		pkg:   messageDir, tests: "^TestReplayWaitsForLaggingStore$",
	},
	{
		name: "pending-not-read", breaks: "a page shows a message without a change that is not applied yet",
		edits: edit(messageDir+"/reader.go", "		Fold(entries, pending)\n		return nil\n	})\n	return entries, cut, err\n", "		_ = pending\n		return nil\n	})\n	return entries, cut, err\n"),
		pkg:   messageDir, tests: "^TestReadsIncludeUnappliedChanges$",
	},
	{
		name: "pending-read-last", breaks: "a change that is applied between the reads of a page is not shown",
		edits: []mutation.Edit{
			{
				File: messageDir + "/reader.go",
				Old:  "		pending, err := r.log.Pending(ctx, channelID)\n		if err != nil {\n			return err\n		}\n		if entries, err = r.log.Entries(ctx, channelID, rg); err != nil {\n			return err\n		}\n",
				New:  "		if entries, err = r.log.Entries(ctx, channelID, rg); err != nil {\n			return err\n		}\n		pending, err := r.log.Pending(ctx, channelID)\n		if err != nil {\n			return err\n		}\n",
			},
		},
		pkg: messageDir, tests: "^TestPendingChangesAreReadFirst$",
	},
	{
		name: "pending-read-last-in-replays", breaks: "a change that is applied between the reads of a replay is not shown",
		edits: []mutation.Edit{
			{
				File: messageDir + "/replay.go",
				Old:  "	pending, err := log.Pending(ctx, p.channelID)\n	if err != nil {\n		return err\n	}\n	rg := ", New: "	var err error\n	rg := ",
			},
			{
				File: messageDir + "/replay.go",
				Old:  "	p.through = p.goal\n	if n := len(p.sends); rg.cut",
				New:  "	pending, err := log.Pending(ctx, p.channelID)\n	if err != nil {\n		return err\n	}\n	p.through = p.goal\n	if n := len(p.sends); rg.cut",
			},
			{
				File: messageDir + "/replay.go",
				Old:  "	if p.changed, err = log.Changed(ctx, p.channelID, p.after, p.goal+1, p.limit, p.maxBytes); err != nil {\n		return err\n	}\n",
			},
			{
				File: messageDir + "/replay.go",
				Old:  "	if p.sends, err = log.Entries(ctx, p.channelID, rg); err != nil {\n",
				New: "	if p.changed, err = log.Changed(ctx, p.channelID, p.after, p.goal+1, p.limit, p.maxBytes); err != nil {\n		return err\n	}\n" +
					"	if p.sends, err = log.Entries(ctx, p.channelID, rg); err != nil {\n",
			},
		},
		pkg: messageDir, tests: "^TestPendingChangesAreReadFirst$",
	},
	{
		name: "slow-reads-count", breaks: "a read that began before entries were removed under it is returned",
		edits: edit(messageDir+"/replay.go", "time.Since(began) > readWithin {", "time.Since(began) < 0 {"),
		pkg:   messageDir, tests: "^TestSlowReadsFail$",
	},
	{
		name: "older-change-shown", breaks: "of two changes of a message that are not applied yet, the older one is shown",
		edits: edit(messageDir+"/replay.go", "		newest[pending[i].TargetSeq] = &pending[i] // ascending by seq\n",
			"		if newest[pending[i].TargetSeq] == nil {\n			newest[pending[i].TargetSeq] = &pending[i]\n		}\n"),
		pkg: messageDir, tests: "^TestReplayOfRandomLogs$",
	},
	{
		name: "gap-not-told", breaks: "a subscriber from before the oldest entry is moved to it without a word",
		edits: edit(fanoutDir+"/subscription.go", "to, reason = st.Oldest-1, GapHistoryGone", "to = st.Oldest - 1"),
		pkg:   fanoutDir, tests: "^Test(HistoryGoneWhileLive|HistoryGoneInReplay|Positions)$",
	},
	// Access.
	{
		name: "replays-unchecked", breaks: "a replay shows an entry of a later access revision to a subscriber who was checked at an earlier one",
		edits: edit(fanoutDir+"/subscription.go", "			t.requireRev(events[i].Rev)\n", "			t.requireRev(0 * events[i].Rev)\n"),
		pkg:   fanoutDir, tests: "^TestStrangerGetsNoPageThatShowsALaterChange$",
	},
	{
		name: "live-unchecked", breaks: "a live entry of a later access revision goes to subscribers who were checked at an earlier one",
		edits: edit(fanoutDir+"/admit.go", "		if u.admitted >= rev {\n", "		if u.admitted >= noRev {\n"),
		pkg:   fanoutDir, tests: "^TestStrangerGetsNoEntry",
	},
	{
		name: "pages-unchecked", breaks: "a page shows messages of a later access revision than the one at which the caller was checked",
		edits: edit(messageDir+"/service.go", "	if read <= checked {\n", "	if read <= checked || channelID != \"\" {\n"),
		pkg:   messageDir, tests: "^TestServiceChecksAgainAfterASwitch$",
	},
	{
		name: "lower-revision-stored", breaks: "an entry is stored after one of a later access revision",
		edits: edit(messageDir+"/lanecheck.go", "	case it.Rev < rev:\n", "	case it.Rev < 0:\n"),
		pkg:   messageDir, tests: "^TestWriterHandsBack",
	},
	{
		name: "revision-not-inherited", breaks: "a message does not have the access revision of its change",
		edits: edit(mongoDir+"/apply.go", "	if change.Rev > 0 {\n", "	if change.Rev < 0 {\n"),
		pkg:   mongoDir, tests: "^TestStore$/^ChangesRaiseTheRevisionOfTheirMessages$",
	},
	{
		name: "followers-are-members", breaks: "every user who has sent to an open channel stays in it when it is closed",
		edits: edit(channelDir+"/channel.go", "return m.Role >= RoleMember }", "return m.Role >= Follower }"),
		pkg:   channelDir, tests: "^Test",
	},
	{
		name: "created-at-the-same-revision", breaks: "a channel that is created again has the access revision of the deleted one",
		edits: edit(mongoDir+"/channeldelete.go",
			"{Key: \"settings_rev\", Value: int64(1)}, {Key: \"rev\", Value: int64(1)}}},\n		{Key: \"$set\", Value: set},",
			"{Key: \"settings_rev\", Value: int64(1)}}},\n		{Key: \"$set\", Value: set},"),
		pkg: mongoDir, tests: "^TestChannels$/^DeletedChannelsAreCreatedAnew$",
	},
	{
		name: "life-ignored", breaks: "who sent to a channel before its deletion follows the one that was created again",
		edits: edit(mongoDir+"/cursor.go", "!mode.open || cursor.Seq < mode.began {", "!mode.open {"),
		pkg:   mongoDir, tests: "^TestChannels$/^LateSendersDoNotFollowANewChannel$",
	},
	{
		name: "end-unchecked", breaks: "a deletion is finished although the log has not ended or is not published",
		edits: edit(retentionDir+"/delete.go", "err != nil || !all || l.row.Oldest < end.Oldest || !l.published(end) {", "err != nil || !all {"),
		pkg:   retentionDir, tests: "^TestDeletedChannel",
	},
	// Edits and erasure.
	{
		name: "recall-leaves-pending", breaks: "a recall leaves the text of an edit that is not applied yet",
		edits: edit(mongoDir+"/apply.go", "	if change.Kind == message.KindRecall {\n		for i := range pending {", "	if change.Kind == message.KindRecall {\n		for i := range pending[:0] {"),
		pkg:   mongoDir, tests: "^TestStore$/^(ApplyOfARecallLeavesNoText|ApplyOfSeveralIsThatOfEach|ConcurrentAppliesLeaveNoText)$",
	},
	{
		name: "scrubbed-recall-erases", breaks: "a pending recall by a user who is erased erases the message of another one",
		edits: edit(messageDir+"/erase.go", "e.FromID == ErasedUser && e.ClientMsgID != ErasedKey(e.Seq)", "e.FromID == ErasedUser"),
		pkg:   mongoDir, tests: "^TestStore$/^ScrubbedRecallsEraseNobodyElse$",
	},
	{
		name: "replay-from-a-cache-behind", breaks: "a replay is served from a cache that a later recall has not reached",
		edits: edit(messageDir+"/replay.go", "read(ctx, channelID, rg, max(atLeast, head.Seq))", "read(ctx, channelID, rg, atLeast)"),
		pkg:   messageDir, tests: "^TestReplayFromCacheBehindARecall$",
	},
	{
		name: "parked-for-ever", breaks: "an event that waited for the one before it is delivered with a text that was recalled meanwhile",
		edits: edit(fanoutDir+"/fill.go", "if now.Sub(e.at) > recentFor ||", "if now.Sub(e.at) < 0 ||"),
		pkg:   fanoutDir, tests: "^TestParkedEventsAreReadAgain$",
	},
	{
		name: "no-last-pass", breaks: "an erasure ends without a look for what was written while it ran",
		edits: edit(erasureDir+"/runner.go", "now().Before(quiet) {", "now().Before(quiet) && job.UserID == \"\" {"),
		pkg:   erasureDir, tests: "^TestErasedOnlyAfterSettle$",
	},
	// Signing out.
	{
		name: "no-marker", breaks: "what Redis does not have counts as not revoked, also if Redis was flushed",
		edits: edit(revokedDir+"/ask.go", "		if !whole {\n", "		if !whole && len(found) > 0 {\n"),
		pkg:   revokedDir, tests: "^TestFlush$",
	},
	{
		name: "declared-before-copied", breaks: "the copy in Redis is declared complete before it is",
		edits: edit(revokedDir+"/keeper.go", "	case !*filled || !whole || overflow:\n", "	case !*filled && !whole || overflow:\n"),
		pkg:   revokedDir, tests: "^TestFlush$",
	},
	{
		name: "life-of-the-caller", breaks: "a revocation lasts as long as the caller's token, and not as long as any of its login",
		edits: edit(revokedDir+"/list.go", "		e.Until = latest(e.Until, p.Expires.UTC().Truncate(time.Millisecond))\n", "		e.Until = p.Expires.UTC().Truncate(time.Millisecond)\n"),
		pkg:   revokedDir, tests: "^TestLife$",
	},
	{
		name: "announced-only", breaks: "nodes know only the revocations that were announced to them",
		edits: edit(revokedDir+"/poll.go", "	l.apply(entries, true)\n	l.mu.Lock()\n	if later(next, l.stamp) {", "	l.mu.Lock()\n	if later(next, l.stamp) {"),
		pkg:   revokedDir, tests: "^Test(EverybodyRefuses|Streams)$",
	},
	{
		name: "polls-at-start-only", breaks: "nodes ask the store for revocations when they start, and Redis afterwards",
		edits: edit(revokedDir+"/poll.go", "wait = l.cfg.Interval - rand.N(l.cfg.Interval/10+1) {",
			"wait = time.Hour - rand.N(l.cfg.Interval/10+1) {"),
		pkg: revokedDir, tests: "^TestEngines$",
	},
	{
		name: "open-by-default", breaks: "redis.fail_open has the opposite effect",
		edits: edit(revokedDir+"/ask.go", "	if !l.cfg.FailOpen {\n", "	if l.cfg.FailOpen {\n"),
		pkg:   revokedDir, tests: "^TestEngines$",
	},
	{
		name: "streams-watched-late", breaks: "a stream is registered after the last check of its token, so that it misses a revocation in between",
		edits: []mutation.Edit{
			{
				File: rpcDir + "/handler.go", Old: "		watch := deps.Revocations.Watch(p, cancel)\n		defer watch.Close()\n		// Once", New: "		// Once",
			},
			{
				File: rpcDir + "/handler.go", Old: "		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, watchKey{}, watch)))\n",
				New: "		watch := deps.Revocations.Watch(p, cancel)\n		defer watch.Close()\n		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, watchKey{}, watch)))\n",
			},
		},
		pkg: rpcDir, tests: "^TestStreamIsWatchedBeforeItsCheck$",
	},
	{
		name: "streams-checked-once", breaks: "the token of a stream is not checked again once the stream is registered",
		edits: edit(rpcDir+"/handler.go", "		if err := deps.Revocations.Check(ctx, p); err != nil {\n", "		if err := ctx.Err(); err != nil {\n"),
		pkg:   rpcDir, tests: "^TestStreamIsCheckedOnceWatched$",
	},
}
