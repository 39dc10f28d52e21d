-- Finds where messages of a group are in the log, by their IDs.
--
-- KEYS[1] S:meta      HASH
-- KEYS[2] S:moved     ZSET message id -> µs in the log
-- KEYS[3] S:replayed  ZSET
-- ARGV[1] uid
-- ARGV[2] group
-- ARGV[3...] of each message its ID, and the µs in it, or 0 if it was scheduled
-- RETURNS of each its µs, 0 if it is not known. Errors: NOTOPIC.
local meta, moved, replayed, uid, group, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local any, answer = redis.call('ZCARD', replayed) > 0, {}
for at = 3, #args, 2 do
  local own = 'i ' .. args[at] .. ' ' .. group
  local latest = any and redis.call('ZREVRANGEBYLEX', replayed, '(' .. own .. '!', '[' .. own .. ' ', 'LIMIT', 0, 1)[1]
  local score = redis.call('ZSCORE', moved, args[at])
  answer[#answer + 1] = latest and string.match(latest, ' 0*(%d+) %d+$') or score and text(tonumber(score)) or args[at + 1]
end
return answer
