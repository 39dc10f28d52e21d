-- Moves a group: it begins anew after an id. What it had pending, parked or for a retry is dropped, and its counters begin
-- anew; what it passed over is counted as skipped.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed  ZSET
-- KEYS[4] stream:topic:{<topic>:<p>}:g:<group>:lease  STRING
-- KEYS[5] stream:topic:{<topic>:<p>}:g:<group>:retry  STREAM
-- KEYS[6] stream:topic:{<topic>:<p>}:g:<group>:stats  HASH
-- KEYS[7...] the group's other keys that go: retrying, keys, parked, and their data
-- ARGV[1] uid
-- ARGV[2] group
-- ARGV[3] start  the id after which it begins, or $
-- RETURNS 1. Errors: NOTOPIC, NOGROUP, INUSE.
--
-- Safe to repeat: as nothing was read meanwhile, the group begins there again.
local main, meta, delayed, lease, retry, stats, keys, uid, group, start = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS, ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
if not groups_of(main)[group] then
  return redis.error_reply('NOGROUP')
end
if redis.call('EXISTS', lease) == 1 then
  return redis.error_reply('INUSE')
end
for at = 7, #keys do
  redis.call('UNLINK', keys[at])
end
-- Only destroying it drops all that is pending, with the names of its consumers.
redis.call('XGROUP', 'DESTROY', main, group)
make_group(main, meta, delayed, retry, stats, group, start)
return 1
