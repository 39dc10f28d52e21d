-- Reads entries of a shard's log after a position.
--
-- KEYS[1] meta   HASH of the shard
-- KEYS[2] log    LIST
-- ARGV[1] epoch  of the position
-- ARGV[2] after  the position
-- ARGV[3] limit  at most this many entries, 1 or more
-- ARGV[4] at     ms since 1970: the time of the entry at the position; 0 if it is not known
-- RETURNS what head returns, and a list of entries; or RESET instead of the list if the epoch is another
-- one, the entry after the position was trimmed, or the log ends before it; or OTHER if the log has
-- another entry at the position.
local meta, log, epoch, after, limit, at = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local reply = head(meta, now_ms())
local seq = reply[3]
local missing = seq - after
local length = redis.call('LLEN', log)
if reply[2] ~= epoch or missing < 0 or missing > length then
  reply[7] = 'RESET'
elseif at ~= '0' and missing < length and string.match(redis.call('LINDEX', log, text(-missing - 1)), '^%S+ (%S+)') ~= at then
  reply[7] = 'OTHER'
elseif missing == 0 then
  reply[7] = {}
else
  reply[7] = redis.call('LRANGE', log, text(-missing), text(math.min(limit - missing, 0) - 1))
end
return reply
