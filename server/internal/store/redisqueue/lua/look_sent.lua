-- Forgets a dead letter that has been replayed to another partition: step 3 of 3, in the partition that had it.
--
-- KEYS[1] dlq     STREAM of dead letters
-- KEYS[2] moving  HASH dead letter -> partition that it is being replayed to
-- KEYS[3] stats   HASH counters of the group
-- ARGV[1] id
-- RETURNS 1 if it was there, 0 if not.
--
-- Safe to repeat.
local dlq, moving, stats, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local n = redis.call('XDEL', dlq, id)
if n == 1 then
  redis.call('HINCRBY', stats, 'replayed', 1)
end
redis.call('HDEL', moving, id)
return n
