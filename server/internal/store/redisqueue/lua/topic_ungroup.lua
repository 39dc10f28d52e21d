-- Removes a group of a partition, with all that it has there but its dead letters.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3...] the group's own keys
-- ARGV[1] uid
-- ARGV[2] group
-- RETURNS 1 if it was removed, 0 if there is no such group or partition.
--
-- Safe to repeat.
local main, meta, keys, uid, group = KEYS[1], KEYS[2], KEYS, ARGV[1], ARGV[2]

if redis.call('HGET', meta, 'uid') ~= uid then
  return 0
end
local removed = redis.call('XGROUP', 'DESTROY', main, group)
for at = 3, #keys do
  redis.call('UNLINK', keys[at])
end
return removed
