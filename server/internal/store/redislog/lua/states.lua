-- Returns what a group keeps about entries, at one moment.
--
-- KEYS[1] S:g:<group>       HASH
-- KEYS[2] S:g:<group>:open  HASH
-- KEYS[3] S:g:<group>:rows  HASH
-- ARGV[1] uid
-- ARGV[2] n  how many fields of S:g:<group>:open follow
-- ARGV[3...] these; the µs of the entries
-- RETURNS {cursor, sent; of each field its value or false; of each entry its row or false}. Errors: NOGROUP.
local state, open, rows, uid, n, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), ARGV

local marks = redis.call('HMGET', state, 'uid', 'cursor', 'sent')
if marks[1] ~= uid or not marks[2] or not marks[3] then
  return redis.error_reply('NOGROUP')
end
local answer = {marks[2], marks[3]}
for at = 3, #args do
  answer[#answer + 1] = redis.call('HGET', at < 3 + n and open or rows, args[at])
end
return answer
