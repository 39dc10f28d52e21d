-- Tells what a group has pending in one of its streams, in order of ids.
--
-- KEYS[1] meta    HASH of the partition
-- KEYS[2] stream  STREAM main or retry
-- KEYS[3] lease   STRING "<holder> <epoch>"
-- ARGV[1] uid        of the topic
-- ARGV[2] group
-- ARGV[3] partition
-- ARGV[4] start      where to begin: "(" and an id, or "-"
-- ARGV[5] n          the most entries; they are read, and Redis does nothing else meanwhile
-- RETURNS {what the lease is or "", now in ms, the last entry's id or "", and {message id, consumer, idle ms, attempt} of each}; NOTOPIC
-- if the topic is not there, NOGROUP if the group is not.
--
-- Safe to repeat.
local meta, stream, lease, uid, group, partition, start, n = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
-- XPENDING tells how long ago a delivery was, by a clock that it reads itself. Only where that has not moved on meanwhile is the time of
-- the delivery the same in every call.
local now, pending
for _ = 1, 5 do
  now = now_ms()
  pending = redis.pcall('XPENDING', stream, group, start, '+', n)
  if now_ms() == now then
    break
  end
end
if pending.err then
  return redis.error_reply('NOGROUP no such consumer group')
end

local answer = {redis.call('GET', lease) or '', now, #pending > 0 and pending[#pending][1] or ''}
for _, p in ipairs(pending) do
  local fields = entry_at(stream, p[1]) or {}
  answer[#answer + 1] = {message_of(partition, p[1], fields), p[2], p[3], tonumber(fields.a or '0') + p[4]}
end
return answer
