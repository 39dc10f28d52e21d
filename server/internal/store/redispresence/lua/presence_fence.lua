-- Keeps a dead node from changing anything in a shard.
--
-- KEYS[1] meta  HASH of the shard; dead:<node>: ms since when
-- ARGV[1] node
-- ARGV[2] keep  ms after which fences are removed
-- RETURNS now ms.
--
-- Safe to repeat: the fence keeps its time.
local meta, node, keep = KEYS[1], ARGV[1], tonumber(ARGV[2])

local now = now_ms()
local all = redis.call('HGETALL', meta)
for at = 1, #all, 2 do
  if string.sub(all[at], 1, 5) == 'dead:' and tonumber(all[at + 1]) <= now - keep then
    redis.call('HDEL', meta, all[at])
  end
end
redis.call('HSETNX', meta, 'dead:' .. node, text(now))
return now
