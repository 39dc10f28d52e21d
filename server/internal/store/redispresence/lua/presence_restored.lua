-- Records that a node has written all its parts since the epoch began.
--
-- KEYS[1] meta   HASH of the shard; r:<node>: 1
-- ARGV[1] epoch
-- ARGV[2] node
-- RETURNS 1, or 0 if the epoch is another one or is settled, and nothing was changed.
--
-- Safe to repeat.
local meta, epoch, node = KEYS[1], ARGV[1], ARGV[2]

local current, settled = unpack(redis.call('HMGET', meta, 'epoch', 'settled'))
if current ~= epoch or settled then
  return 0
end
redis.call('HSET', meta, 'r:' .. node, '1')
return 1
