-- Gives a scheduled message another time.
--
-- KEYS[1] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[2] stream:topic:{<topic>:<p>}:delayed  ZSET
-- ARGV[1] uid
-- ARGV[2] message id
-- ARGV[3] delay ms  or empty if there is a time
-- ARGV[4] time ms
-- ARGV[5] furthest ms  how far ahead it may be due
-- ARGV[6] channel  of wake-ups
-- ARGV[7] wakes    what is published there
-- RETURNS its due time in ms. Errors: NOTOPIC, NOSCHEDULED, TOOFAR.
--
-- Safe to repeat: a delay begins again.
local meta, delayed, uid, id, delay, at, furthest, channel, wakes = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
if not redis.call('ZSCORE', delayed, id) then
  return redis.error_reply('NOSCHEDULED')
end
local now, old = now_up(), first_due(delayed)
local due = due_at(now, delay, at)
if due > now + furthest then
  return redis.error_reply('TOOFAR')
end
redis.call('ZADD', delayed, 'XX', text(due), id)
wake(delayed, old, now, channel, wakes)
return text(due)
