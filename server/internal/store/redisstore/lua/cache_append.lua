-- Applies entries to a channel's cached messages, as long as they follow the newest one there. Values are
-- opaque bytes: decoding and encoding them here would corrupt large numbers and empty lists.
--
-- KEYS[1] msg_cache:<channel>  ZSET, see lib_cache.lua
-- ARGV[1] head  the beginning of every value of this epoch, up to its seq
-- ARGV[2] keep  maximum number of messages in the set
-- ARGV[3] max   bytes  maximum size of the messages in the set, which has at least one
-- ARGV[4] ttl   seconds from the last message to the set's expiry
-- ARGV[5...]    for each entry, in order: its seq; the number of messages up to it; 1 for an insert,
--               0 for an edit or recall; the seq of its message; the value of that message
-- RETURNS how many entries were handled, from the front. The next one is an insert that does not
--         follow the set.
--
-- Safe to repeat: an entry at or before the end of the set changes nothing, not even the expiry.
local key, head, keep, max, ttl, entries = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV

local state = state_of(key, head)
local done, message_added = 0, false

-- replace puts a changed message in the place of the older one. It returns false if the set does not
-- have the message.
local function replace(seq, value)
  local old = redis.call('ZRANGEBYSCORE', key, seq, seq)[1]
  if not old then
    return false
  end
  if tonumber(changed_seq_of(old)) < tonumber(changed_seq_of(value)) then
    redis.call('ZADD', key, seq, value)
    redis.call('ZREM', key, old)
    state.bytes = state.bytes + #value - #old
    mark(key, seq, value)
  end
  return true
end

for at = 5, #entries, 5 do
  local seq, insert, target, value = tonumber(entries[at]), entries[at + 2] == '1', entries[at + 3], entries[at + 4]
  if state and seq <= state.seq then
    -- already in the set
  elseif state and seq == state.seq + 1 then
    if insert then
      redis.call('ZADD', key, target, value)
      mark(key, target, value)
      state.bytes, message_added = state.bytes + #value, true
    elseif not replace(target, value) then
      state.unknown = seq
    end
    state.seq, state.count = seq, tonumber(entries[at + 1])
  elseif insert then
    break
  else
    -- The set lacks the entries before this one, and only a message may start a new set.
    redis.call('DEL', key)
    state, message_added = nil, false
  end
  done = done + 1
end

if state then
  trim(key, state, keep, max)
  save(key, head, state)
end
if message_added then
  redis.call('EXPIRE', key, ttl)
end
return done
