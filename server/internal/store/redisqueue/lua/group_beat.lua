-- Says that members of a group live on, and tells who its members are.
--
-- KEYS[1] members  HASH stream id -> "<expiry ms> <joined µs> <node> <consumer>"
-- ARGV[1] ttl      ms from now until they are taken off if they don't say so again
-- ARGV[2...]       for each: its stream id; when it joined, or 0 if it is new; its node; its consumer name
-- RETURNS all members that live: stream id, value, and so on.
--
-- Safe to repeat: a new member that is there already keeps the time at which it joined.
local members, ttl, mine = KEYS[1], tonumber(ARGV[1]), ARGV

local micros = now_us()
local now = math.floor(micros / 1000)

for at = 2, #mine, 4 do
  local session, joined = mine[at], mine[at + 1]
  if joined == '0' then
    local known = redis.call('HGET', members, session)
    joined = known and string.match(known, '^%d+ (%d+) ') or text(micros)
  end
  redis.call('HSET', members, session, table.concat({text(now + ttl), joined, mine[at + 2], mine[at + 3]}, ' '))
end
local all, live = redis.call('HGETALL', members), {}
for at = 1, #all, 2 do
  if tonumber(string.match(all[at + 1], '^(%d+) ')) <= now then
    redis.call('HDEL', members, all[at])
  else
    live[#live + 1] = all[at]
    live[#live + 1] = all[at + 1]
  end
end
if #mine > 1 and redis.call('PTTL', members) < ttl then
  redis.call('PEXPIRE', members, ttl)
end
return live
