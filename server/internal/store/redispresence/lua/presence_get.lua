-- Reads the states of users.
--
-- KEYS[1] meta      HASH of the shard
-- KEYS[2...] users  ZSET "<node> <part>" -> expiry ms
-- RETURNS what head returns, and for each user a list of the entries that have not expired.
local meta, keys = KEYS[1], KEYS

local now = now_ms()
local reply, later = head(meta, now), '(' .. text(now)
for i = 2, #keys do
  reply[#reply + 1] = redis.call('ZRANGEBYSCORE', keys[i], later, '+inf')
end
return reply
