-- Reads entries by their µs.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta  HASH
-- ARGV[1] uid
-- ARGV[2] budget  bytes of records; a single record may be larger
-- ARGV[3...] the µs
-- RETURNS {for how many µs it looked, and the entries that there are}. Errors: NOTOPIC.
local main, meta, uid, budget, args = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local answer, bytes = {#args - 2}, 0
for at = 3, #args do
  local entry = redis.call('XRANGE', main, args[at], args[at], 'COUNT', 1)[1]
  if entry then
    bytes = bytes + #(entry[2][2] or '')
    if bytes > budget and #answer > 1 then
      answer[1] = at - 3
      return answer
    end
    answer[#answer + 1] = entry
  end
end
return answer
