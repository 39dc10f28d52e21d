-- Renews the leases of a node and of peers that it hears, and ends those that have expired.
--
-- KEYS[1] meta    HASH heard: ms of the last beat of any node
-- KEYS[2] alive   ZSET node -> end of its lease, ms
-- KEYS[3] dead    ZSET node -> when its lease was ended, ms
-- ARGV[1] node
-- ARGV[2] ttl     ms that a lease lasts
-- ARGV[3] gap     ms without any beat after which every lease begins again
-- ARGV[4] keep    ms that a dead node stays in `dead`
-- ARGV[5] most    dead nodes that are kept, the newest
-- ARGV[6...]      for each peer: node, ms since it was heard
-- RETURNS now ms, a list of the nodes that are alive, a list of those that are dead.
--
-- If no node could beat, the server was away, and the silence says nothing about any node: before
-- anything is judged, every lease begins again, and so does the time that dead nodes are kept, for
-- nobody could sweep them. No lease ends later than ttl from now, whatever the clock was before. A
-- peer's lease is never shortened, and a peer without one gets none. The beat of a dead node renews
-- nothing.
--
-- Safe to repeat.
local meta, alive, dead, node, ttl, gap, keep, most, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

local now = now_ms()
local latest = now + ttl

local function answer()
  return {now, redis.call('ZRANGE', alive, 0, -1), redis.call('ZRANGE', dead, 0, -1)}
end

if redis.call('ZSCORE', dead, node) then
  return answer()
end

local heard = tonumber(redis.call('HGET', meta, 'heard') or now)
local away = now - heard > gap
local was, ends, stored = {}, {}, redis.call('ZRANGE', alive, 0, -1, 'WITHSCORES')
for at = 1, #stored, 2 do
  was[stored[at]] = tonumber(stored[at + 1])
  ends[stored[at]] = away and latest or math.min(tonumber(stored[at + 1]), latest)
end
for at = 6, #args, 2 do
  local peer = args[at]
  if ends[peer] then
    ends[peer] = math.max(ends[peer], latest - tonumber(args[at + 1]))
  end
end
ends[node] = latest

for id, at in pairs(ends) do
  if at <= now then
    redis.call('ZREM', alive, id)
    redis.call('ZADD', dead, text(now), id)
  elseif at ~= was[id] then
    redis.call('ZADD', alive, text(at), id)
  end
end
if away then
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, -1)) do
    redis.call('ZADD', dead, text(now), id)
  end
end
redis.call('ZREMRANGEBYSCORE', dead, '-inf', text(now - keep))
redis.call('ZREMRANGEBYRANK', dead, 0, -most - 1)
redis.call('HSET', meta, 'heard', text(now))
return answer()
