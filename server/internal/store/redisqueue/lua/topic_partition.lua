-- Makes a partition if it is absent, with groups where they are absent, and says what of it is paused.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed  ZSET
-- KEYS[4...] for each group :retry (STREAM) and :stats (HASH)
-- ARGV[1] uid
-- ARGV[2] produce_paused  1 or 0
-- ARGV[3] consume_paused  1 or 0
-- ARGV[4...] for each group its name and the id after which it begins, or $
-- RETURNS 1. Error: NOTOPIC, if the partition is of another topic of the same name.
--
-- Safe to repeat: what is there stays.
local main, meta, delayed, keys, uid, produce_paused, consume_paused, args = KEYS[1], KEYS[2], KEYS[3], KEYS, ARGV[1], ARGV[2], ARGV[3], ARGV

local there = redis.call('HGET', meta, 'uid')
if there and there ~= uid then
  return redis.error_reply('NOTOPIC')
end
if redis.call('EXISTS', main) == 0 then
  -- A stream without entries can only be made by a group.
  redis.call('XGROUP', 'CREATE', main, '-', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', main, '-')
end
for at = 4, #args, 2 do
  make_group(main, meta, delayed, keys[at], keys[at + 1], args[at], args[at + 1])
end
local function pause(field, paused)
  if paused == '1' then
    redis.call('HSET', meta, field, '1')
  else
    redis.call('HDEL', meta, field)
  end
end
redis.call('HSET', meta, 'uid', uid)
pause('produce_paused', produce_paused)
pause('consume_paused', consume_paused)
return 1
