-- Removes what is done with: messages that all groups have settled and retention does not keep, and dead letters that are
-- too old. A dead letter that is being replayed to another partition stays, with all that came after it.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:dlq   STREAM
-- KEYS[4] stream:topic:{<topic>:<p>}:dlq:moving  HASH dead letter -> partition
-- ARGV[1] uid
-- ARGV[2] n           how many messages at most, and how many dead letters
-- ARGV[3] age ms      how long settled messages stay
-- ARGV[4] messages    the most of them; 0 is without limit
-- ARGV[5] dead age ms how long dead letters stay; 0 is for ever
-- ARGV[6...] the names of the topic's groups. Nothing is removed while one of them is not there.
-- RETURNS how many messages were removed, dead letters not counted. Error: NOTOPIC.
--
-- Safe to repeat.
local main, meta, dead, moving, uid, n, age, messages, dead_age, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local now = now_ms()
local removed = trim_settled(main, list(args, 6, #args - 5), now, age, messages, n)
if dead_age > 0 and redis.call('EXISTS', dead) == 1 then
  local floor = text(math.max(now - dead_age, 0)) .. '-0'
  for _, id in ipairs(redis.call('HKEYS', moving)) do
    if before(id, floor) then
      floor = id
    end
  end
  trim_below(dead, floor, n)
end
return removed
