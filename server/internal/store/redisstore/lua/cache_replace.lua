-- Replaces a channel's cached piece of the log by one that was loaded from the store, unless it reaches as far already.
--
-- KEYS[1] msg_cache:<channel>  ZSET value -> seq
-- ARGV[1] head  what every value of this epoch begins with, up to its seq
-- ARGV[2] ttl   seconds that the set lives after its last message
-- ARGV[3] began ms  this server's time (cache_now) before the new entries were read
-- ARGV[4] life  ms  how old they may be
-- ARGV[5] last  seq of the last new entry
-- ARGV[6...]    for each new entry, ascending: its seq; its value
-- RETURNS 1 if the set was replaced, 0 if it was left as it is, -1 if the entries are too old, or read after now.
--
-- Safe to repeat: the second time the set reaches as far.
local key, head, ttl, began, life, last, entries = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

-- The process may have stood still since, and what it read may be a text that was recalled meanwhile. Only here, at the
-- moment of the write, can that be told.
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
