-- Takes a scheduled message back.
--
-- KEYS[1] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[2] stream:topic:{<topic>:<p>}:delayed  ZSET
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed:data  HASH
-- ARGV[1] uid
-- ARGV[2] message id
-- RETURNS 1. Errors: NOTOPIC, NOSCHEDULED.
--
-- Safe to repeat: the repeat answers NOSCHEDULED.
local meta, delayed, data, uid, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
if redis.call('ZREM', delayed, id) == 0 then
  return redis.error_reply('NOSCHEDULED')
end
redis.call('HDEL', data, id)
redis.call('HINCRBY', meta, 'cancelled', 1)
return 1
