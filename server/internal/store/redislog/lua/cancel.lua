-- Removes scheduled messages, or gives them other due times.
--
-- KEYS[1] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[2] :delayed       ZSET message id -> due ms
-- KEYS[3] :delayed:data  HASH message id -> record
-- KEYS[4] :moved         ZSET message id -> µs in the log
-- ARGV[1] uid
-- ARGV[2] channel   of wake-ups
-- ARGV[3] wakes     what is published there
-- ARGV[4] furthest ms  how far ahead a message can be due
-- ARGV[5...] of each message: its id; 'd<ms>' (a delay) or 'a<ms>' (a time), or empty to remove it
-- RETURNS for each {code, new due ms or µs}: 0 done, with the due time; 1 moved to the log before, with
--         its µs there; 2 not scheduled; 3 too far ahead. Errors: NOTOPIC.
--
-- Safe to repeat: what was removed is not scheduled any more. A delay begins again.
local meta, delayed, data, moved, uid, channel, wakes, furthest, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local now_ms, old, changed = math.ceil(now_us() / 1000), first_due(delayed), false

local function change(id, when)
  if not redis.call('ZSCORE', delayed, id) then
    local at = redis.call('ZSCORE', moved, id)
    return at and {1, at} or {2, '0'}
  end
  if when == '' then
    redis.call('ZREM', delayed, id)
    redis.call('HDEL', data, id)
    redis.call('HINCRBY', meta, 'cancelled', 1)
    return {0, '0'}
  end
  local due = due_at(when, now_ms)
  if due > now_ms + furthest then
    return {3, '0'}
  end
  redis.call('ZADD', delayed, text(due), id)
  changed = true
  return {0, text(due)}
end

local results = {}
for at = 5, #args, 2 do
  results[#results + 1] = change(args[at], args[at + 1])
end
if changed then
  wake(delayed, old, now_ms, channel, wakes)
end
return results
