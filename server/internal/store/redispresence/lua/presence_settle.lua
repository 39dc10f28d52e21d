-- Records that an epoch is settled, and when.
--
-- KEYS[1] meta   HASH of the shard; settled: ms since 1970
-- ARGV[1] epoch
-- RETURNS 1, or 0 if the epoch is another one, and nothing was changed.
--
-- Safe to repeat: the epoch keeps its time.
local meta, epoch = KEYS[1], ARGV[1]

if redis.call('HGET', meta, 'epoch') ~= epoch then
  return 0
end
redis.call('HSETNX', meta, 'settled', text(now_ms()))
return 1
