package queues

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The folders of the files that the mutants change.
const (
	dispatchDir = "server/internal/queue/dispatch/"
	consumeDir  = "server/internal/queue/consume/"
	scriptDir   = "server/internal/store/redislog/lua/"
)

// step and calm create steps of mutants.
var (
	step = chaos.OneFault
	calm = chaos.Calm
)

// mutants are the mutants of the harness.
var mutants = []chaos.Mutant{
	{
		Name: "epoch-uncompared", Heading: "leases", Breaks: "commits of a node that has lost its lease are accepted",
		Edits: []chaos.Edit{{File: scriptDir + "commit.lua", Old: "if stored_epoch > epoch then\n", New: "if false then\n"}},
		Steps: zombies,
		Shows: []chaos.Name{Redelivered, Gen, Conservation, Loss, DeadLetters},
	},
	{
		Name: "epoch-anew", Heading: "leases", Breaks: "a new lease's epoch may be lower than the last one",
		Edits: []chaos.Edit{{
			File: scriptDir + "acquire.lua", Old: "local epoch = text(math.max(tonumber(expected) + 1, now))",
			New: "local epoch = text(now % 1000000 + 1)",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Epoch},
	},
	{
		Name: "version-uncompared", Heading: "commits", Breaks: "a commit that is repeated because its answer was lost is applied again",
		Edits: []chaos.Edit{{File: scriptDir + "commit.lua", Old: "if stored_version >= version then\n", New: "if false then\n"}},
		Steps: []chaos.Step{calm(25 * time.Second)},
		Shows: []chaos.Name{Conservation},
	},
	{
		Name: "gen-uncompared", Heading: "deliveries", Breaks: "a settlement of an older delivery counts for the present one",
		Edits: []chaos.Edit{{
			File: dispatchDir + "settle.go", Old: "if j != nil && j.held() && j.gen == s.Gen && j.session.ID == s.Session {",
			New: "if j != nil && j.held() {",
		}},
		Steps: []chaos.Step{calm(25 * time.Second)},
		Shows: []chaos.Name{Gen},
	},
	{
		Name: "doubt-skipped", Heading: "takeover", Breaks: "a new lease holder does not ask who has the messages that are in flight",
		Edits: []chaos.Edit{{
			File: consumeDir + "doubt.go", Old: "if now.Before(h.doubtUntil) || h.d.Loading() {", New: "if h.d.Loading() {",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Kept, OneKey, Gen},
	},
	{
		Name: "grace-skipped", Heading: "sessions", Breaks: "a session without a stream is lost at once",
		Edits: []chaos.Edit{
			{
				File: consumeDir + "session.go", Old: "s.grace = time.AfterFunc(s.Grace+lostAfter, func() {",
				New: "s.grace = time.AfterFunc(1, func() {",
			},
			{File: consumeDir + "session.go", Old: "now.Sub(s.contact) >= s.Grace+lostAfter {", New: "!now.IsZero() {"},
		},
		Steps: takeovers,
		Shows: []chaos.Name{Kept, OneKey},
	},
	{
		Name: "all-charged", Heading: "attempts", Breaks: "a delivery that nobody began counts as an attempt if its consumer is lost",
		Edits: []chaos.Edit{{
			File: dispatchDir + "session.go", Old: "charged := j.state == begun && (j.suspect() || !begunSuspect)", New: "charged := j.state == begun || !begunSuspect",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Charged},
	},
	{
		Name: "dead-letter-dropped", Heading: "retries", Breaks: "a message that the consumer gives up is removed, but its dead letter is not always written",
		Edits: []chaos.Edit{{
			File: scriptDir + "commit.lua", Old: "local letter = redis.call('XADD', dlq, '*', unpack(header))",
			New: "local letter = code == '' and '0-0' or redis.call('XADD', dlq, '*', unpack(header))",
		}},
		Steps: healthy,
		Shows: []chaos.Name{DeadLetters},
	},
	{
		Name: "delay-ignored", Heading: "retries", Breaks: "a retry does not wait for the delay that the consumer asked for",
		Edits: []chaos.Edit{{
			File: dispatchDir + "job.go", Old: "now.Add(cmp.Or(delay, d.backoff(j.attempts)))",
			New: "now.Add(cmp.Or(delay/10, d.backoff(j.attempts)))",
		}},
		Steps: healthy,
		Shows: []chaos.Name{Early},
	},
	{
		Name: "lane-freed", Heading: "order", Breaks: "a key's next message goes to any session while one is in flight",
		Edits: []chaos.Edit{{File: dispatchDir + "lane.go", Old: "	case l.inFlight == 0:\n", New: "	case l.inFlight < 9:\n"}},
		Steps: healthy,
		Shows: []chaos.Name{OneKey, StrictOrder},
	},
	{
		Name: "strict-freed", Heading: "order", Breaks: "strict order does not wait for the retry of an earlier message of the key",
		Edits: []chaos.Edit{{
			File: dispatchDir + "job.go", Old: "if d.cfg.Order == OrderStrict && j.key != 0 {", New: "if d.cfg.Order != d.cfg.Order {",
		}},
		Steps: healthy,
		Shows: []chaos.Name{StrictOrder},
	},
	{
		Name: "moved-and-kept", Heading: "delays", Breaks: "some due messages are moved to the log, and moved again two seconds later",
		Edits: []chaos.Edit{
			{
				File: scriptDir + "due.lua", Old: "local us, count, bytes = math.max(last + 1, now), 0, 0\n",
				New: "local us, count, bytes, kept = math.max(last + 1, now), 0, 0, false\n",
			},
			// A fraction marks a member that was kept once. Without the check it would be kept
			// forever.
			{
				File: scriptDir + "due.lua", Old: "    redis.call('HDEL', data, id)\n    note_size",
				New: "    kept = count % 10 == 1 and not string.find(due[at + 1], '.', 1, true)\n" +
					"    if not kept then\n      redis.call('HDEL', data, id)\n    end\n    note_size",
			},
			{
				File: scriptDir + "due.lua", Old: "  redis.call('ZREM', delayed, id)\nend\n",
				New: "  if kept then\n    redis.call('ZADD', delayed, text(now_ms + 2000) .. '.5', id)\n    kept = false\n" +
					"  else\n    redis.call('ZREM', delayed, id)\n  end\n" + "end\n",
			},
		},
		Steps: healthy,
		Shows: []chaos.Name{Duplicate},
	},
	{
		Name: "moved-early", Heading: "delays", Breaks: "messages are moved to the log up to 50 ms before they are due",
		Edits: []chaos.Edit{{File: scriptDir + "due.lua", Old: "'-inf', text(now_ms), 'BYSCORE'", New: "'-inf', text(now_ms + 50), 'BYSCORE'"}},
		Steps: healthy,
		Shows: []chaos.Name{Early},
	},
	{
		Name: "cancel-kept", Heading: "delays", Breaks: "a cancelled message still appears",
		Edits: []chaos.Edit{{
			File: scriptDir + "cancel.lua", Old: "    redis.call('ZREM', delayed, id)\n    redis.call('HDEL', data, id)\n", New: "",
		}},
		Steps: []chaos.Step{calm(12 * time.Second)},
		Shows: []chaos.Name{StoredAfterError},
	},
	{
		Name: "idempotency-unmarked", Heading: "produce", Breaks: "an idempotency key is not remembered",
		Edits: []chaos.Edit{{
			File: scriptDir + "put.lua",
			Old:  "    redis.call('SET', idem, its_digest .. ' ' .. text(us) .. ' ' .. text(due), 'PX', text(window + math.max(due - now_ms, 0)))\n", New: "",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{Duplicate},
	},
	{
		Name: "trim-sent", Heading: "retention", Breaks: "messages that were sent count as settled when the log is trimmed",
		Edits: []chaos.Edit{{
			File: scriptDir + "trim.lua", Old: "redis.call('HGET', keys[i], 'cursor')", New: "redis.call('HGET', keys[i], 'sent')",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Loss},
	},
}

// asleep is how long a holder of leases is stopped or cut off. Its beat is over after 3 s, and
// other nodes acquire its leases soon after.
const asleep = 5 * time.Second

// healthy is a schedule without faults but lost replies. takeovers makes leases change holders.
// zombies lets a holder continue after it has lost its leases.
var (
	healthy   = []chaos.Step{calm(6 * time.Second)}
	takeovers = []chaos.Step{
		step(ConsumerKill, 0, time.Second), step(ConsumerKill, 2, time.Second), step(chaos.NodeKill, 0, time.Second),
		step(ConsumerKill, 1, time.Second), step(ConsumerKill, 3, time.Second),
	}
	zombies = []chaos.Step{
		step(chaos.StallRedis, 0, asleep), step(chaos.NodeStop, 1, asleep), step(chaos.StallRedis, 1, asleep),
		step(chaos.NodeStop, 0, asleep), step(chaos.StallRedis, 0, asleep), step(chaos.StallRedis, 1, asleep),
		step(chaos.StallRedis, 0, asleep), step(chaos.StallRedis, 1, asleep),
	}
)
