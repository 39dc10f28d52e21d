package queues

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The folders of the files that the mutants change.
const (
	queueDir  = "server/internal/queue/"
	scriptDir = "server/internal/store/redisqueue/lua/"
)

// markUnchecked removes a check from the server's fetch, which then returns new entries regardless
// of earlier fetches. The check makes a worker first claim pending messages that it does not know,
// which would hide the defects of some mutants.
var markUnchecked = chaos.Edit{
	File: scriptDir + "lib_fetch.lua",
	Old:  "if (redis.call('HGET', stats, 'fetched') or '0') ~= mark then\n", New: "if false then\n",
}

// step and calm create steps of mutants.
var (
	step = chaos.OneFault
	calm = chaos.Calm
)

// mutants are the mutants of the harness.
var mutants = []chaos.Mutant{
	{
		Name: "settle-unfenced", Heading: "leases", Breaks: "a stream settles deliveries that it has lost",
		Edits: []chaos.Edit{
			{
				File: scriptDir + "group_settle.lua",
				Old:  "if redis.call('GET', lease) ~= fence then\n", New: "if false then\n",
			},
			{File: queueDir + "call.go", Old: "if !now.Before(w.until) {", New: "if now.IsZero() {"},
		},
		Steps: zombies,
		Shows: []chaos.Name{Fence, Redelivered},
	},
	{
		Name: "fetch-unfenced", Heading: "leases", Breaks: "a stream that has lost its lease to another is told that it holds it, and continues to fetch messages",
		Edits: []chaos.Edit{
			{
				File: scriptDir + "lib_fetch.lua",
				Old:  "if redis.call('GET', lease) ~= fence then\n", New: "if false then\n",
			},
			markUnchecked,
			{File: scriptDir + "group_renew.lua", Old: "  return -1\n", New: "  return redis.call('EXISTS', lease) - 1\n"},
		},
		Steps: zombies,
		Shows: []chaos.Name{TwoOwners},
	},
	{
		Name: "epoch-anew", Heading: "leases", Breaks: "a new lease's epoch may be lower than the last one",
		Edits: []chaos.Edit{{
			File: scriptDir + "group_acquire.lua",
			Old:  "text(math.max(now_us(), tonumber(redis.call('GET', epoch) or '0') + 1))", New: "text(now_ms() % 1000 + 1)",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Epoch},
	},
	{
		Name: "pending-left", Heading: "takeover", Breaks: "a new owner reads new messages and never takes over the pending ones",
		Edits: []chaos.Edit{markUnchecked, {File: queueDir + "worker.go", Old: "scanning: true, want: true", New: "scanning: false, want: true"}},
		Steps: takeovers,
		Shows: []chaos.Name{Stuck, Order},
	},
	{
		Name: "pending-last", Heading: "takeover", Breaks: "a new owner receives new messages before the pending ones",
		Edits: []chaos.Edit{markUnchecked, {
			File: queueDir + "worker.go",
			Old:  "	if w.scanning {\n		return w.read(stepClaim)", New: "	if w.scanning && !w.want {\n		return w.read(stepClaim)",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Order, StrictOrder},
	},
	{
		Name: "takeover-uncounted", Heading: "takeover", Breaks: "a delivery that was lost with its consumer does not count as an attempt",
		Edits: []chaos.Edit{{File: scriptDir + "group_claim.lua", Old: "'RETRYCOUNT', deliveries + 1", New: "'RETRYCOUNT', deliveries"}, {
			File: scriptDir + "group_claim.lua", Old: "      deliveries = deliveries + 1\n", New: "",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Attempts},
	},
	{
		Name: "dead-letter-dropped", Heading: "retries", Breaks: "a message that the consumer gives up is removed, but its dead letter is not always written",
		Edits: []chaos.Edit{{
			File: scriptDir + "group_settle.lua", Old: "  redis.call(unpack(letter))\n",
			New: "  if code == '' then\n    redis.call(unpack(letter))\n  end\n",
		}},
		Steps: healthy,
		Shows: []chaos.Name{DeadLetters},
	},
	{
		Name: "retry-unacked", Heading: "retries", Breaks: "a message that is to be retried stays pending, too",
		Edits: []chaos.Edit{{
			File: scriptDir + "group_settle.lua",
			Old:  "  ack(stream, group, own, id)\n  done.retried = done.retried + 1", New: "  done.retried = done.retried + 1",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Redelivered, Conservation},
	},
	{
		Name: "retry-ungated", Heading: "retries", Breaks: "a repeated request for a retry causes a second retry",
		Edits: []chaos.Edit{{
			File: scriptDir + "group_settle.lua",
			Old:  "function verdicts.retry(stream, own, id, message, key, delay, reason, code)\n  local deliveries = mine(stream, id)\n",
			New:  "function verdicts.retry(stream, own, id, message, key, delay, reason, code)\n  local deliveries = mine(stream, id) or 1\n",
		}},
		Steps: []chaos.Step{calm(20 * time.Second)},
		Shows: []chaos.Name{Redelivered, Conservation},
	},
	{
		Name: "parking-skipped", Heading: "retries", Breaks: "strict order does not wait for an earlier message of the key",
		Edits: []chaos.Edit{{File: scriptDir + "group_fetch_strict.lua", Old: "if holder and holder ~= message then", New: "if false then"}},
		Steps: healthy,
		Shows: []chaos.Name{StrictOrder},
	},
	{
		Name: "moved-and-kept", Heading: "delays", Breaks: "some due messages are moved to the stream, and moved again two seconds later",
		Edits: []chaos.Edit{{
			File: scriptDir + "delay_due.lua",
			Old:  "  redis.call('ZREM', line, member)\n  redis.call('HDEL', data, member)\n",
			// A fraction marks a member that was kept once. Without the check it would be kept
			// forever.
			New: "  if scheduled and moved % 10 == 1 and not string.find(due[at + 1], '.', 1, true) then\n" +
				"    redis.call('ZADD', line, text(now + 2000) .. '.5', member)\n" +
				"  else\n    redis.call('ZREM', line, member)\n    redis.call('HDEL', data, member)\n  end\n",
		}},
		Steps: healthy,
		Shows: []chaos.Name{Duplicate},
	},
	{
		Name: "moved-early", Heading: "delays", Breaks: "messages are moved to the stream up to 50 ms before they are due",
		Edits: []chaos.Edit{{File: scriptDir + "delay_due.lua", Old: "'-inf', text(now)", New: "'-inf', text(now + 50)"}},
		Steps: healthy,
		Shows: []chaos.Name{Early},
	},
	{
		Name: "cancel-kept", Heading: "delays", Breaks: "a cancelled message still appears",
		Edits: []chaos.Edit{{
			File: scriptDir + "input_cancel.lua",
			Old:  "redis.call('ZREM', delayed, id) == 0", New: "not redis.call('ZSCORE', delayed, id)",
		}, {File: scriptDir + "input_cancel.lua", Old: "redis.call('HDEL', data, id)\n", New: ""}},
		Steps: []chaos.Step{calm(12 * time.Second)},
		Shows: []chaos.Name{StoredAfterError},
	},
	{
		Name: "idempotency-unmarked", Heading: "produce", Breaks: "an idempotency key is not remembered",
		Edits: []chaos.Edit{{
			File: scriptDir + "input_produce.lua",
			Old:  "      redis.call('SET', keys[idempotency], digest .. ' ' .. partition .. '-' .. result .. ' 0', 'PX', window)\n", New: "",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{Duplicate},
	},
	{
		Name: "trim-pending", Heading: "retention", Breaks: "pending messages count as settled when the stream is trimmed",
		Edits: []chaos.Edit{{
			File: scriptDir + "lib_input.lua", Old: "local needed = g.lowest or after(g.last)", New: "local needed = after(g.last)",
		}},
		Steps: takeovers,
		Shows: []chaos.Name{Loss},
	},
}

// asleep is how long an owner of partitions is stopped or cut off. Its leases end after 2 s, and
// other streams acquire them soon after.
const asleep = 3500 * time.Millisecond

// healthy is a schedule without faults but lost replies. takeovers makes partitions change owners.
// zombies lets an owner continue after it has lost its partitions.
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
