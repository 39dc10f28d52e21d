-- Tells what a group has pending in a partition.
--
-- KEYS[1] meta   HASH of the partition
-- KEYS[2] main   STREAM
-- KEYS[3] retry  STREAM of the group
-- KEYS[4] lease  STRING "<holder> <epoch>"
-- ARGV[1] uid        of the topic
-- ARGV[2] group
-- ARGV[3] partition
-- ARGV[4] n          the most entries
-- RETURNS {what the lease is or "", now in ms, and {message id, consumer, idle ms, attempt} of each}; NOTOPIC if the topic is not
-- there, NOGROUP if the group is not.
local meta, main, retry, lease, uid, group, partition, n = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
if redis.pcall('XPENDING', main, group).err or redis.pcall('XPENDING', retry, group).err then
  return redis.error_reply('NOGROUP no such consumer group')
end

local answer = {redis.call('GET', lease) or '', now_ms()}
for _, stream in ipairs({main, retry}) do
  local left = n - #answer + 2
  local pending = left > 0 and redis.call('XPENDING', stream, group, '-', '+', left) or {}
  for _, p in ipairs(pending) do
    local fields = entry_at(stream, p[1]) or {}
    answer[#answer + 1] = {message_of(partition, p[1], fields), p[2], p[3], tonumber(fields.a or '0') + p[4]}
  end
end
return answer
