package presence

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The folders of the files that the mutants change.
const (
	hubDir    = "server/internal/presence/"
	scriptDir = "server/internal/store/redispresence/lua/"
)

// step and calm create steps of mutants.
var (
	step = chaos.OneFault
	calm = chaos.Calm
)

// The schedules of the mutants. healthy has no faults but lost replies, and lasts longer than the
// time after which parts are renewed.
var (
	healthy = []chaos.Step{calm(24 * time.Second)}
	// zombies are nodes that are stopped for longer than their lease. They continue with what clients
	// sent meanwhile.
	zombies = []chaos.Step{
		calm(6 * time.Second), step(chaos.NodeStop, 0, leaseTTL+5*time.Second), calm(10 * time.Second),
		step(chaos.NodeStop, 1, leaseTTL+5*time.Second), calm(8 * time.Second),
	}
	// deaths are nodes that do not come back soon.
	deaths = []chaos.Step{
		calm(6 * time.Second), step(chaos.NodeKill, 0, time.Second), calm(15 * time.Second), step(chaos.NodeKill, 1, time.Second),
		calm(15 * time.Second),
	}
	// flushes remove everything from Redis, when the watchers know all states.
	flushes = []chaos.Step{
		calm(10 * time.Second), step(chaos.RedisFlush, 0, 0), calm(16 * time.Second), step(chaos.RedisFlush, 0, 0), calm(10 * time.Second),
	}
	// silences make a node's announcements arrive late or never.
	silences = []chaos.Step{
		calm(6 * time.Second), step(chaos.CutNATS, 0, 9*time.Second), calm(8 * time.Second), step(chaos.CutNATS, 1, 9*time.Second),
		calm(8 * time.Second), step(chaos.CutNATS, 2, 9*time.Second),
	}
	// outages are times at which Redis is away for all nodes, for longer than a lease.
	outages = []chaos.Step{calm(12 * time.Second), step(chaos.RedisKill, 0, 19*time.Second), calm(12 * time.Second)}
	// loners are nodes that alone cannot reach Redis, for longer than a lease.
	loners = []chaos.Step{
		calm(10 * time.Second), step(chaos.CutRedis, 0, 12*time.Second), calm(12 * time.Second), step(chaos.CutRedis, 1, 12*time.Second),
	}
)

// mutants are the mutants of the harness.
var mutants = []chaos.Mutant{
	{
		Name: "presence-log-dropped", Heading: "log", Breaks: "a change is announced but not logged",
		Edits: []chaos.Edit{{File: scriptDir + "lib_presence.lua", Old: "    redis.call('RPUSH', log, unpack(lines))\n", New: ""}},
		Steps: healthy,
		Shows: []chaos.Name{Event},
	},
	{
		Name: "presence-holes-ignored", Heading: "log", Breaks: "a node that has missed an entry applies the next one and goes on from there",
		Edits: []chaos.Edit{{
			File: hubDir + "follower.go", Old: "	case e.Seq == s.tail+1:\n		v.apply(s, e)", New: "	case e.Seq > s.tail:\n		v.apply(s, e)",
		}},
		Steps: silences,
		Shows: []chaos.Name{Missed, TwoWinners},
	},
	{
		Name: "presence-headless", Heading: "log", Breaks: "nobody reads the ends of the logs",
		Edits: []chaos.Edit{{File: hubDir + "view.go", Old: "			v.requestHeads(now)\n", New: "			_ = v.requestHeads\n"}},
		Steps: silences,
		Shows: []chaos.Name{Missed},
	},
	{
		Name: "presence-renewal-logged", Heading: "log", Breaks: "a renewal of a part is logged and announced as a change",
		Edits: []chaos.Edit{{
			File: scriptDir + "presence_set.lua", Old: "if changed and (mode", New: "if (changed or part ~= '') and (mode",
		}},
		Steps: healthy,
		Shows: []chaos.Name{Event},
	},
	{
		Name: "presence-unfenced", Heading: "leases", Breaks: "a node that was declared dead may still write under its old id",
		Edits: []chaos.Edit{
			{File: scriptDir + "lib_presence.lua", Old: "if fence and not sweep then", New: "if false then"},
			// A node that wakes up learns late that it is dead.
			{
				File: hubDir + "lease.go", Old: "	r, err := l.cfg.Store.Beat(",
				New: "	time.Sleep(l.cfg.LeaseTTL / 8)\n	r, err := l.cfg.Store.Beat(",
			},
		},
		Steps: zombies,
		Shows: []chaos.Name{Missed, Ghost, Leak},
	},
	{
		Name: "presence-unswept", Heading: "leases", Breaks: "the parts of a dead node stay",
		Edits: []chaos.Edit{{File: hubDir + "sweep.go", Old: "if err != nil || len(ids) == 0 {", New: "if true || len(ids) == 0 {"}},
		Steps: deaths,
		Shows: []chaos.Name{Missed, Ghost, Leak},
	},
	{
		Name: "presence-gap-ignored", Heading: "leases", Breaks: "leases end although Redis was away",
		Edits: []chaos.Edit{{File: scriptDir + "presence_beat.lua", Old: "local away = now - heard > gap", New: "local away = false"}},
		Steps: outages,
		Shows: []chaos.Name{FalseOffline},
	},
	{
		Name: "presence-peers-silent", Heading: "leases", Breaks: "nodes do not renew the leases of peers that they hear",
		Edits: []chaos.Edit{{File: hubDir + "lease.go", Old: "if p.withoutStore < storelessLimit {", New: "if p.withoutStore < 0 {"}},
		Steps: loners,
		Shows: []chaos.Name{FalseOffline},
	},
	{
		Name: "presence-id-reused", Heading: "leases", Breaks: "a node that was declared dead continues under its old id",
		Edits: []chaos.Edit{{
			File: hubDir + "lease.go",
			Old:  "l.id, l.state = presenceIDOf(l.cfg.Node, 1+l.deaths), leaseReviving", New: "l.state = leaseReviving",
		}},
		Steps: zombies,
		Shows: []chaos.Name{Missed, FalseOffline},
	},
	{
		Name: "presence-platform-removed", Heading: "parts", Breaks: "a node that removes its part removes those of all nodes",
		Edits: []chaos.Edit{{
			File: scriptDir + "presence_set.lua",
			Old:  "if owner == node or tonumber(stored[at + 1]) <= now then",
			New:  "if owner == node or part == '' or tonumber(stored[at + 1]) <= now then",
		}},
		Steps: healthy,
		Shows: []chaos.Name{FalseOffline},
	},
	{
		Name: "presence-linger-kept", Heading: "parts", Breaks: "the end of an absence makes the user offline who has come back",
		Edits: []chaos.Edit{{
			File: hubDir + "conn.go", Old: "time.AfterFunc(cs.offlineAfter, func() { cs.remove(c) })",
			New: "time.AfterFunc(cs.offlineAfter, func() {\n" +
				"		cs.remove(c)\n		sh.mu.Lock()\n		defer sh.mu.Unlock()\n" +
				"		if u := sh.users[c.user]; u != nil {\n			for _, o := range append([]*conn(nil), u.conns...) {\n" +
				"				if o.platform == c.platform {\n					cs.drop(o, u)\n				}\n			}\n		}\n	})",
		}},
		Steps: healthy,
		Shows: []chaos.Name{FalseOffline, Missed},
	},
	{
		Name: "presence-read-unordered", Heading: "reads", Breaks: "a read replaces a newer state that arrived meanwhile",
		Edits: []chaos.Edit{
			{
				File: hubDir + "table.go", Old: "	if n.seq < w.seq || n.seq == w.seq && n.at < w.at && !w.stale {\n		return\n	}\n",
				New: "",
			},
			// Reads are slow, so that more of them meet a change.
			{
				File: hubDir + "read.go", Old: "	for i, res := range v.cfg.Store.Get(ctx, calls) {\n",
				New: "	all := v.cfg.Store.Get(ctx, calls)\n	time.Sleep(300 * time.Millisecond)\n	for i, res := range all {\n",
			},
		},
		Steps: []chaos.Step{calm(50 * time.Second)},
		Shows: []chaos.Name{Missed},
	},
	{
		Name: "presence-cache-stale", Heading: "reads", Breaks: "changes do not reach the cache of users whom nobody watches",
		Edits: []chaos.Edit{{
			File: hubDir + "table.go",
			Old:  "	if w == nil {\n		v.updateUnwatched(s, e.UserID, n)\n		return\n", New: "	if w == nil {\n		return\n",
		}},
		Steps: healthy,
		Shows: []chaos.Name{Missed, Ghost, FalseOffline},
	},
	{
		Name: "presence-watch-late", Heading: "reads", Breaks: "a watch reads the states first and is registered afterwards",
		Edits: []chaos.Edit{{
			File: hubDir + "watch.go", Old: "	users, before, err := v.register(s, add, remove)\n",
			New: "	early := map[string]State{}\n" +
				"	if all, err := v.reads.read(ctx, add); err == nil {\n		for i, r := range all {\n			if r.err == nil && r.certain {\n" +
				"				early[add[i]] = r.state\n			}\n		}\n	}\n	time.Sleep(700 * time.Millisecond)\n" +
				"	users, before, err := v.register(s, add, remove)\n	for _, userID := range users {\n" +
				"		shard := &v.shards[ShardOf(userID)]\n		shard.mu.Lock()\n		state, ok := early[userID]\n" +
				"		if w := shard.watched[userID]; ok && w != nil && len(w.streams) == 1 {\n" +
				"			shard.revision++\n			w.state, w.known, w.stale, w.revision = state, true, false, shard.revision\n		}\n" +
				"		shard.mu.Unlock()\n	}\n",
		}},
		Steps: []chaos.Step{calm(50 * time.Second)},
		Shows: []chaos.Name{Missed, FalseOffline, Ghost},
	},
	{
		Name: "presence-stream-kept", Heading: "reads", Breaks: "an ended stream stays in the table of watched users",
		Edits: []chaos.Edit{{File: hubDir + "hub.go", Old: "	h.view.forget(s)\n", New: ""}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{Leak},
	},
	{
		Name: "presence-login-unlogged", Heading: "logins", Breaks: "a login that wins is not logged, so the loser keeps its stream",
		Edits: []chaos.Edit{{
			File: scriptDir + "presence_login.lua",
			Old:  "local logged = 0\nif holder and not mine then", New: "local logged = 0\nif false then",
		}},
		Steps: healthy,
		Shows: []chaos.Name{TwoWinners},
	},
	{
		Name: "presence-login-renewed", Heading: "logins", Breaks: "a reconnect counts as a new login",
		Edits: []chaos.Edit{{
			File: hubDir + "open.go", Old: "	if req.Login != nil {\n		c.login.generation = req.Login.Generation\n",
			New: "	if req.Login != nil && c.slot == \"\" {\n		c.login.generation = req.Login.Generation\n",
		}},
		// Clients of a node that is stopped do not receive KICKED, and reconnect to others.
		Steps: zombies,
		Shows: []chaos.Name{WrongWinner, KickLoop},
	},
	{
		Name: "presence-flush-believed", Heading: "epochs", Breaks: "the absence of a user counts after Redis has lost everything",
		Edits: []chaos.Edit{{
			File: scriptDir + "lib_presence.lua", Old: "'seq', '0', 'opened', text(now))",
			New: "'seq', '0', 'opened', text(now), 'settled', text(now))",
		}},
		Steps: flushes,
		Shows: []chaos.Name{FalseOffline},
	},
	{
		Name: "presence-part-believed", Heading: "epochs", Breaks: "the parts of one node count as the state before others are restored",
		Edits: []chaos.Edit{
			{File: hubDir + "table.go", Old: "		n.state = n.state.withMissing(w.state)\n", New: ""},
			{File: hubDir + "read.go", Old: "		case !r.certain: //", New: "		case !r.certain && r.state == 0: //"},
			// Shards are settled late, so that more changes and reads meet the time before.
			{File: hubDir + "epoch.go", Old: "	settleEvery = 250 * time.Millisecond", New: "	settleEvery = 3 * time.Second"},
		},
		Steps: flushes,
		Shows: []chaos.Name{FalseOffline},
	},
	{
		Name: "presence-restore-logged", Heading: "epochs", Breaks: "parts that are written again after a flush are logged as changes",
		Edits: []chaos.Edit{{File: scriptDir + "presence_set.lua", Old: "(mode ~= '1' or settled)", New: "true"}},
		Steps: flushes,
		Shows: []chaos.Name{Event},
	},
}
