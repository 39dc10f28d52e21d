-- Reads a page of the users who are online.
--
-- KEYS[1] meta    HASH of the shard
-- KEYS[2] online  ZSET users, all of score 0
-- ARGV[1] min     "(" and the last user of the page before, or "-" for the first page
-- ARGV[2] limit   at most this many users
-- RETURNS what head returns, and a list of users in ascending order.
local meta, online, min, limit = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local reply = head(meta, now_ms())
reply[7] = redis.call('ZRANGEBYLEX', online, min, '+', 'LIMIT', 0, limit)
return reply
