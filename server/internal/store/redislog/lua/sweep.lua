-- Removes settled entries from the log.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta  HASH
-- ARGV[1] uid
-- ARGV[2] gv  the version of the set of groups under which the entries were settled
-- ARGV[3...] their IDs in the stream, up to 1,000
-- RETURNS how many were removed. Errors: NOTOPIC, STALE.
--
-- Safe to repeat.
local main, meta, uid, gv, args = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV

local head = redis.call('HMGET', meta, 'uid', 'gv')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if (head[2] or '0') ~= gv then
  return redis.error_reply('STALE')
end
return redis.call('XDEL', main, unpack(args, 3))
