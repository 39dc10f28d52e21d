-- Reads entries of a shard's log after a position.
--
-- KEYS[1] meta   HASH of the shard
-- KEYS[2] log    LIST
-- ARGV[1] epoch  of the position
-- ARGV[2] after  the position
-- ARGV[3] limit  at most this many entries, 1 or more
-- RETURNS now ms, epoch, seq, opened ms, settled, and a list of entries; or RESET instead of the list
-- if the epoch is another one, the entry after the position was trimmed, or the log ends before it.
local meta, log, epoch, after, limit = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local reply = head(meta, now_ms())
local seq = reply[3]
local missing = seq - after
if reply[2] ~= epoch or missing < 0 or missing > redis.call('LLEN', log) then
  reply[6] = 'RESET'
elseif missing == 0 then
  reply[6] = {}
else
  reply[6] = redis.call('LRANGE', log, text(-missing), text(math.min(limit - missing, 0) - 1))
end
return reply
