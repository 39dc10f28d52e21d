-- Removes everything of a partition. Redis frees the memory in the background, so that the size is of
-- no account.
--
-- KEYS[1] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[2...] all other keys of the partition
-- ARGV[1] uid
-- RETURNS 1 if it was removed, 0 if there is none, or one of another topic of the name.
--
-- Safe to repeat.
local meta, keys, uid = KEYS[1], KEYS, ARGV[1]

if redis.call('HGET', meta, 'uid') ~= uid then
  return 0
end
for at = #keys, 2, -1 do
  redis.call('UNLINK', keys[at])
end
redis.call('UNLINK', meta)
return 1
