-- Replaces a channel's cached part of the log by one that was loaded from the store, unless it
-- already reaches as far.
--
-- KEYS[1] msg_cache:<channel>  ZSET value -> seq
-- ARGV[1] head  the beginning of every value of this epoch, up to its seq
-- ARGV[2] ttl   seconds from the last message to the set's expiry
-- ARGV[3] began ms  this server's time (cache_now) before the new entries were read
-- ARGV[4] life  ms  maximum age of the new entries
-- ARGV[5] last  seq of the last new entry
-- ARGV[6...]    for each new entry, ascending: its seq; its value
-- RETURNS 1 if the set was replaced, 0 if it was left unchanged, -1 if the entries are too old or
--         began is in the future.
--
-- Safe to repeat: the second time the set already reaches as far.
local key, head, ttl, began, life, last, entries = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

-- The process may have been suspended since the read, and a text that it read may have been
-- recalled meanwhile. Only here, at the moment of the write, can this be detected.
local age = now_ms() - began
if age < 0 or age > life then
  return -1
end

local newest = newest_of(key, head)
if newest and newest >= last then
  return 0
end
redis.call('DEL', key)
for at = 6, #entries, 2 do
  redis.call('ZADD', key, entries[at], entries[at + 1])
end
redis.call('EXPIRE', key, ttl)
return 1
