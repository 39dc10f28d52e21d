-- Replaces a session's cached messages by those that were loaded from the store, unless they already
-- reach as far.
--
-- KEYS[1] chat:session:<id>:messages  LIST, see lib_list.lua
-- ARGV[1] head  the beginning of every value of this epoch, up to its seq
-- ARGV[2] keep  maximum number of messages in the list
-- ARGV[3] max   bytes  maximum size of the messages in the list, which has at least one
-- ARGV[4] ttl   seconds from the last message to the list's expiry
-- ARGV[5] began ms  this server's time (cache_now) before the messages were read
-- ARGV[6] life  ms  maximum age of the messages
-- ARGV[7] last  seq of the last entry that the messages include
-- ARGV[8] count   number of messages in the log up to it
-- ARGV[9] unknown  seq of the last change of a message that is not among them; 0 if none
-- ARGV[10...]   for each message, ascending: its seq; its value
-- RETURNS 1 if the list was replaced, 0 if it was left unchanged, -1 if the messages are too old or
--         began is in the future.
--
-- Safe to repeat: the second time the list already reaches as far.
local key, head, keep, max, ttl, began, life, last, count, unknown, messages = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV

-- The process may have been suspended since the read, and a text that it read may have been
-- recalled meanwhile. Only here, at the moment of the write, can this be detected.
local age = now_ms() - began
if age < 0 or age > life then
  return -1
end

local old = state_of(key, head)
if old and old.seq >= last then
  return 0
end
redis.call('DEL', key)
local state = { seq = last, count = count, unknown = unknown, bytes = 0 }
redis.call('RPUSH', key, state_text(head, state))
for at = 10, #messages, 2 do
  redis.call('RPUSH', key, messages[at + 1])
  state.bytes = state.bytes + #messages[at + 1]
end
save(key, head, state, keep, max)
redis.call('EXPIRE', key, ttl)
return 1
