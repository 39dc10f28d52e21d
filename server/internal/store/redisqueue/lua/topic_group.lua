-- Makes a group in a partition if it is absent.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed  ZSET
-- KEYS[4] stream:topic:{<topic>:<p>}:g:<group>:retry  STREAM
-- KEYS[5] stream:topic:{<topic>:<p>}:g:<group>:stats  HASH
-- ARGV[1] uid
-- ARGV[2] group
-- ARGV[3] start  the id after which it begins, or $
-- RETURNS 1 if it was made, 0 if it is there. Error: NOTOPIC.
--
-- Safe to repeat.
local main, meta, delayed, retry, stats, uid, group, start = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
return make_group(main, meta, delayed, retry, stats, group, start) and 1 or 0
