package messages

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// step and calm create steps of mutants.
var (
	step = chaos.OneFault
	calm = chaos.Calm
)

// mutants are the mutants of the harness, by heading.
var mutants = slices.Concat(writing, edits, nodes, feeding, caching, subscribing, channels, sizes, costs, expiry, sessions, signingOut)

var writing = []chaos.Mutant{
	{
		Name: "unordered-insert", Heading: "writing", Breaks: "a batch continues after an entry that failed as a duplicate",
		Edits: []chaos.Edit{{
			File: "server/internal/store/mongostore/insert.go",
			Old:  "SetOrdered(true)", New: "SetOrdered(false)",
		}},
		Steps: []chaos.Step{calm(5 * time.Second), step(chaos.NodeStop, 0, 3*time.Second), step(chaos.CutNATS, 1, 3*time.Second)},
		Shows: []chaos.Name{Prefix, Count},
	},
	{
		Name: "early-ack", Heading: "writing", Breaks: "an insert counts as stored regardless of the store's answer",
		Edits: []chaos.Edit{{
			File: "server/internal/message/lane.go",
			Old:  "l.finish(b, n, err, start)", New: "_ = n\n\t\tl.finish(b, len(b.entries), nil, start)",
		}},
		Steps: []chaos.Step{step(chaos.MongoStop, 0, 3*time.Second), step(chaos.MongoKill, 0, 3*time.Second)},
		Shows: []chaos.Name{Loss},
	},
	{
		Name: "head-kept", Heading: "writing", Breaks: "the head stays cached after an error, as if the insert had been stored",
		Edits: []chaos.Edit{{
			File: "server/internal/message/lane.go",
			Old:  "			unresolved[p.channel] = resolveReason{delay: true}\n",
			New:  "			head := p.head\n			p.channel.head = &head\n",
		}},
		Steps: []chaos.Step{
			step(chaos.MongoLost, 0, 6*time.Second), step(chaos.CutMongo, 0, 8*time.Second), step(chaos.MongoLost, 0, 6*time.Second),
		},
		Shows: []chaos.Name{Density, Loss},
	},
	{
		Name: "one-member-acks", Heading: "writing", Breaks: "a write counts as durable once the primary alone has it",
		Edits: []chaos.Edit{{
			File: "server/internal/store/mongostore/mongostore.go",
			Old:  "WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}", New: "WriteConcern{W: 1, Journal: &journaled}",
		}},
		Steps: []chaos.Step{step(chaos.MongoLost, 0, 3*time.Second), step(chaos.MongoLost, 0, 3*time.Second)},
		Shows: []chaos.Name{Loss},
	},
	{
		Name: "older-change-wins", Heading: "writing", Breaks: "an edit is applied over a later change",
		Edits: []chaos.Edit{{
			File: "server/internal/store/mongostore/apply.go",
			Old:  "{Key: \"changed_seq\", Value: bson.D{{Key: \"$lt\", Value: change.Seq}}},", New: "",
		}},
		Steps: []chaos.Step{calm(4 * time.Second), step(chaos.NATSAway, 0, 6*time.Second), step(chaos.NATSAway, 0, 6*time.Second)},
		Shows: []chaos.Name{Changed},
	},
	{
		Name: "recall-leaves-edits", Heading: "writing", Breaks: "an edit keeps its text, which a recall of its message does not remove",
		Edits: []chaos.Edit{{
			File: "server/internal/store/mongostore/apply.go",
			Old:  "updateEntry(change, bson.D{blank, {Key: \"$unset\"", New: "updateEntry(change, bson.D{{Key: \"$unset\"",
		}},
		Steps: []chaos.Step{calm(8 * time.Second)},
		Shows: []chaos.Name{Recalled},
	},
	{
		Name: "own-clock", Heading: "writing", Breaks: "messages have the times of the node's clock, however wrong it is",
		Edits: []chaos.Edit{{
			File: "server/clock.go",
			Old:  "return c.now().Add(time.Duration(c.offset.Load()))", New: "return c.now()",
		}},
		Steps: []chaos.Step{calm(3 * time.Second)},
		Shows: []chaos.Name{Clock},
	},
	{
		Name: "edits-the-recalled", Heading: "writing", Breaks: "a message that was recalled can be edited",
		Edits: []chaos.Edit{{
			File: "server/internal/message/lanecheck.go",
			Old:  "	case target.Status == StatusRecalled:\n", New: "	case target.Status == StatusRecalled && it.Kind == KindRecall:\n",
		}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{Changed},
	},
}

var edits = []chaos.Mutant{
	{
		Name: "edit-not-merged", Heading: "edits", Breaks: "a replay from the store leaves out the changes of messages",
		Edits: []chaos.Edit{{
			File: "server/internal/message/replay.go",
			Old:  "	p.through = p.goal\n	if n := len(p.sends); rg.cut", New: "	p.changed = nil\n	p.through = p.goal\n	if n := len(p.sends); rg.cut",
		}},
		Steps: []chaos.Step{calm(5 * time.Second), step(chaos.CutRedis, 0, 4*time.Second)},
		Shows: []chaos.Name{Hole},
	},
	{
		Name: "applied-is-pending", Heading: "edits", Breaks: "an edit that was applied stays pending",
		Edits: []chaos.Edit{{
			File: "server/internal/store/mongostore/apply.go",
			Old:  "bson.D{blank, {Key: \"$unset\", Value: bson.D{{Key: \"pending\", Value: \"\"}}}}", New: "bson.D{blank}",
		}},
		Steps: []chaos.Step{calm(5 * time.Second)},
		Shows: []chaos.Name{Changed},
	},
}

var nodes = []chaos.Mutant{
	{
		Name: "forward-new-ids", Heading: "nodes", Breaks: "drafts that the home node did not answer for are written locally under another client_msg_id",
		Edits: []chaos.Edit{{
			File: "server/internal/cluster/remote/forward.go",
			Old:  "at, drafts = append(at, i), append(drafts, f.drafts[i])",
			New:  "f.drafts[i].ClientMsgID += \"~\"\n\t\t\tat, drafts = append(at, i), append(drafts, f.drafts[i])",
		}},
		Steps: []chaos.Step{step(chaos.NodeStop, 0, 3*time.Second), step(chaos.NodeStop, 1, 3*time.Second)},
		Shows: []chaos.Name{Duplicate, Unsent},
	},
	{
		Name: "the-dead-keep-work", Heading: "nodes", Breaks: "a node that is gone keeps its shards, so nobody feeds them",
		Edits: []chaos.Edit{{
			File: "server/internal/cluster/roster.go",
			Old:  "forgetAfter   = 1500 * time.Millisecond", New: "forgetAfter   = time.Hour",
		}},
		Steps: []chaos.Step{step(chaos.NodeKill, 0, time.Second), step(chaos.NodeKill, 1, time.Second)},
		Shows: []chaos.Name{Behind, Unpublished},
	},
}

var feeding = []chaos.Mutant{
	{
		Name: "confirm-first", Heading: "feeding", Breaks: "the feeder confirms entries before it has published them",
		Edits: []chaos.Edit{{
			File: "server/internal/feed/feeder.go",
			Old:  "		if err := f.publish(ctx, logger, newBatch(entries)); err != nil {",
			New: "		if err := source.Published(ctx); err != nil {\n			return err\n		}\n" +
				"		if err := f.publish(ctx, logger, newBatch(entries)); err != nil {",
		}},
		Steps: []chaos.Step{
			step(chaos.NATSAway, 0, 5*time.Second).AndKill(0, 2*time.Second).AndKill(1, 3*time.Second),
			step(chaos.NATSAway, 0, 5*time.Second).AndKill(1, 2*time.Second).AndKill(2, 3*time.Second),
		},
		Shows: []chaos.Name{Unpublished},
	},
	{
		Name: "publish-old-text", Heading: "feeding", Breaks: "entries that waited long are published with their old text",
		Edits: []chaos.Edit{{
			File: "server/internal/feed/batch.go",
			Old:  "ok && now.Sub(k.asOf) <= freshness", New: "ok && now.Sub(k.asOf) <= time.Hour",
		}},
		Steps: []chaos.Step{step(chaos.NATSAway, 0, 6*time.Second), step(chaos.NATSAway, 1, 6*time.Second)},
		Shows: []chaos.Name{Recalled, StaleEdit},
	},
}

var caching = []chaos.Mutant{
	{
		Name: "cache-over-hole", Heading: "caching", Breaks: "an entry is added to a cached set that lacks the entry before it",
		Edits: []chaos.Edit{{
			File: "server/internal/store/redisstore/lua/cache_append.lua",
			Old:  "elseif state and seq == state.seq + 1 then", New: "elseif state and seq > state.seq then",
		}},
		Steps: []chaos.Step{
			calm(13 * time.Second), calm(4 * time.Second), step(chaos.RedisPast, 0, 2*time.Second), calm(3 * time.Second),
		},
		Shows: []chaos.Name{Hole, Cache},
	},
	{
		Name: "cache-keeps-text", Heading: "caching", Breaks: "edits and recalls don't change the cached message",
		Edits: []chaos.Edit{{
			File: "server/internal/store/redisstore/lua/cache_append.lua",
			Old:  "    elseif not replace(target, value) then", New: "    elseif replace == nil then",
		}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{Recalled, Cache},
	},
	{
		Name: "head-never-looked-up", Heading: "caching", Breaks: "a page counts as fresh if the head was read within the last hour",
		Edits: []chaos.Edit{{
			File: "server/internal/message/heads.go",
			Old:  "if !k.began.IsZero() && !k.began.Before(called.Add(-maxAge)) {", New: "if !k.began.IsZero() && !k.began.Before(called.Add(-time.Hour)) {",
		}},
		Steps: []chaos.Step{calm(5 * time.Second), step(chaos.CutNATS, 0, 4*time.Second), step(chaos.CutNATS, 1, 4*time.Second)},
		Shows: []chaos.Name{StaleRead},
	},
}

var subscribing = []chaos.Mutant{
	{
		Name: "jump-not-filled", Heading: "subscribing", Breaks: "an event after missing entries is delivered without them",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/topic.go",
			Old:  "		t.seen = max(t.seen, e.Seq)\n		t.park(e)\n		t.fill()\n", New: "		t.deliver(&e)\n",
		}},
		Steps: []chaos.Step{step(chaos.CutNATS, 0, 3*time.Second), step(chaos.CutNATS, 1, 3*time.Second)},
		Shows: []chaos.Name{Hole},
	},
	{
		Name: "resume-one-late", Heading: "subscribing", Breaks: "a stream that resumes skips the entry after its position",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/subscription.go",
			Old:  "			from = *u.want.After\n",
			New:  "			from = min(*u.want.After+1, max(st.Head, *u.want.After))\n",
		}},
		Steps: []chaos.Step{step(chaos.NodeKill, 0, time.Second)},
		Shows: []chaos.Name{Hole},
	},
	{
		Name: "deaf-after-reconnect", Heading: "subscribing", Breaks: "nobody checks for events missed while NATS was disconnected",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/hub.go",
			Old:  "	bus.OnReconnect(h.reconnected)\n", New: "	bus.OnReconnect(func() {})\n",
		}},
		Steps: []chaos.Step{step(chaos.CutNATS, 0, 3*time.Second)},
		Shows: []chaos.Name{Behind},
	},
	{
		Name: "live-too-soon", Heading: "subscribing", Breaks: "a subscription goes live before its replay has reached the live events",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/subscription.go",
			Old:  "return u.after >= max(u.topic.tail, u.goal) }", New: "return u.after >= u.goal }",
		}},
		Steps: []chaos.Step{calm(5 * time.Second), step(chaos.NodeKill, 0, time.Second), step(chaos.NodeKill, 1, time.Second)},
		Shows: []chaos.Name{Hole},
	},
	{
		Name: "replay-repeated", Heading: "subscribing", Breaks: "a live event is delivered although the replay delivered it",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/topic.go",
			Old:  "		if e.Seq <= u.after {\n			i++ // its replay was ahead of the topic\n			continue\n		}\n", New: "",
		}},
		// Subscribers must resume on a node whose topics are behind the log.
		Steps: []chaos.Step{calm(5 * time.Second), step(chaos.CutNATS, 1, 6*time.Second), step(chaos.CutNATS, 0, 6*time.Second)},
		Shows: []chaos.Name{Repeat},
	},
}

var channels = []chaos.Mutant{
	{
		Name: "strangers-let-in", Heading: "channels", Breaks: "users who are not members may use a members-only channel",
		Edits: []chaos.Edit{{
			File: "server/internal/channel/access.go",
			Old:  "return n.Member || !n.Exempt && modes[n.ChannelID].kind == message.ModeMembersOnly", New: "return n.Member",
		}},
		Steps: []chaos.Step{calm(8 * time.Second)},
		Shows: []chaos.Name{Membership},
	},
	{
		Name: "removed-keeps-stream", Heading: "channels", Breaks: "the streams of a removed member keep the channel",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/expel.go",
			Old:  "func (h *Hub) Expel(channelID, subject string, mode message.Mode) {\n", New: "func (h *Hub) Expel(channelID, subject string, mode message.Mode) {\n	channelID += \"~\"\n",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{Membership},
	},
	{
		Name: "own-unread", Heading: "channels", Breaks: "a send does not move the sender's read cursor",
		Edits: []chaos.Edit{{
			File: "server/internal/feed/advancer.go",
			Old:  "		if e.Seq > m.Senders[e.Message.FromID].Seq {\n", New: "		if e.Seq < m.Senders[e.Message.FromID].Seq {\n",
		}},
		Steps: []chaos.Step{calm(3 * time.Second)},
		Shows: []chaos.Name{MyChannels},
	},
	{
		Name: "unread-by-seq", Heading: "channels", Breaks: "edits and recalls count as unread",
		Edits: []chaos.Edit{{
			File: "server/internal/channel/list.go",
			Old:  "Unread: max(0, row.Count-max(m.Count, row.Expired))", New: "Unread: row.Head - m.Cursor.Seq",
		}},
		Steps: []chaos.Step{calm(3 * time.Second)},
		Shows: []chaos.Name{MyChannels},
	},
	{
		Name: "late-senders", Heading: "channels", Breaks: "a message is stored although its sender was checked before the channel was closed",
		Edits: []chaos.Edit{{
			File: "server/internal/message/lanecheck.go",
			Old:  "	case it.Rev < rev:\n", New: "	case it.Rev < 0:\n",
		}},
		Steps: []chaos.Step{step(chaos.NATSAway, 0, 8*time.Second), step(chaos.NATSAway, 1, 8*time.Second)},
		Shows: []chaos.Name{Closed},
	},
	{
		Name: "streams-unchecked", Heading: "channels", Breaks: "streams stay live when an entry of a later access revision comes",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/admit.go",
			Old:  "		if u.admitted >= rev {\n", New: "		if u.admitted >= noRev {\n",
		}},
		Steps: []chaos.Step{calm(20 * time.Second)},
		Shows: []chaos.Name{Closed},
	},
	{
		Name: "any-role", Heading: "channels", Breaks: "every member may recall what others sent",
		Edits: []chaos.Edit{{
			File: "server/internal/channel/access.go",
			Old:  "return role >= Moderator, rev, err", New: "return role >= RoleMember, rev, err",
		}},
		Steps: []chaos.Step{calm(8 * time.Second)},
		Shows: []chaos.Name{Rights},
	},
}

var sizes = []chaos.Mutant{
	{
		Name: "page-says-end", Heading: "sizes", Breaks: "a full page reports that it is the last",
		Edits: []chaos.Edit{{
			File: "server/internal/message/reader.go",
			Old:  "			res.more = true\n", New: "",
		}},
		Steps: []chaos.Step{calm(3 * time.Second)},
		Shows: []chaos.Name{StaleRead},
	},
}

var costs = []chaos.Mutant{
	{
		Name: "unread-kept", Heading: "costs", Breaks: "bytes that a client has read, or that left with it, stay counted",
		Edits: []chaos.Edit{{
			File: "server/internal/unread/unread.go",
			Old:  "	b.taken -= n\n", New: "",
		}},
		Steps: []chaos.Step{calm(3 * time.Second)},
		Shows: []chaos.Name{Memory},
	},
}

var expiry = []chaos.Mutant{
	{
		Name: "keeps-half", Heading: "expiry", Breaks: "a channel keeps half of the messages that its retention keeps",
		Edits: []chaos.Edit{{
			File: "server/internal/retention/look.go",
			Old:  "e.Count <= l.row.Count-p.MaxMessages ||", New: "e.Count <= l.row.Count-p.MaxMessages/2 ||",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{KeptTooFew},
	},
	{
		Name: "expires-late", Heading: "expiry", Breaks: "nothing expires before a channel has a hundred times of what its retention keeps",
		Edits: []chaos.Edit{{
			File: "server/internal/retention/look.go",
			Old:  "> p.MaxMessages+slack(p.MaxMessages) ||", New: "> 100*p.MaxMessages ||",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{KeptTooLong},
	},
	{
		Name: "deleted-text-stays", Heading: "expiry", Breaks: "a deleted channel's entries keep their texts",
		Edits: []chaos.Edit{{
			File: "server/internal/retention/delete.go",
			Old:  "return l.cfg.Log.Clear(ctx, l.row.ChannelID, after, before)", New: "return nil",
		}},
		Steps: []chaos.Step{calm(20 * time.Second)},
		Shows: []chaos.Name{DeletedShown},
	},
	{
		Name: "erases-too-few", Heading: "expiry", Breaks: "an erasure leaves out the first of a user's messages in a channel",
		Edits: []chaos.Edit{{
			File: "server/internal/erasure/runner.go",
			Old:  "		if entries[i].Kind == message.KindSend {\n", New: "		if i == 0 {\n			continue\n		}\n		if entries[i].Kind == message.KindSend {\n",
		}},
		Steps: []chaos.Step{calm(24 * time.Second)},
		Shows: []chaos.Name{ErasedShown},
	},
}
