-- Reads dead letters, the newest first.
--
-- KEYS[1] meta  HASH of the partition
-- KEYS[2] dlq   STREAM of dead letters
-- ARGV[1] uid    of the topic
-- ARGV[2] start  where to begin: "+", or "(" and an id
-- ARGV[3] group  whose dead letters; all if it is ""
-- ARGV[4] n      the most dead letters
-- RETURNS {the last id looked at or "", 1 if there may be more, and {id, fields} of each}; NOTOPIC if the topic is not there.
local meta, dlq, uid, start, group, n = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
local found = redis.call('XREVRANGE', dlq, start, '-', 'COUNT', n)
local answer = {#found > 0 and found[#found][1] or '', #found == n and 1 or 0}
for _, entry in ipairs(found) do
  if group == '' or named(entry[2]).g == group then
    answer[#answer + 1] = entry
  end
end
return answer
