-- Appends entries to a channel's cached part of the log, as long as they are contiguous with it.
-- Values are opaque bytes: decoding and encoding them here would corrupt large numbers and empty
-- lists.
--
-- KEYS[1] msg_cache:<channel>  ZSET value -> seq
-- ARGV[1] head  the beginning of every value of this epoch, up to its seq
-- ARGV[2] keep  maximum number of entries in the set
-- ARGV[3] ttl   seconds from the last message to the set's expiry
-- ARGV[4...]    for each entry, in order: its seq; 1 for an insert, 0 for an edit or recall; its
--               value; the target's seq; the target's current value (the last two are used only for
--               an edit or recall)
-- RETURNS how many entries were handled, from the front. The next one is an insert that is not
--         contiguous with the set.
--
-- Safe to repeat: an entry at or before the end of the set changes nothing, not even the expiry.
local key, head, keep, ttl, entries = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV

local newest = newest_of(key, head)
local done, added, message_added = 0, false, false

local function replace_target(seq, value)
  local old = redis.call('ZRANGEBYSCORE', key, seq, seq)
  if #old == 0 then
    return
  end
  for _, v in ipairs(old) do
    if changed_seq_of(v) >= changed_seq_of(value) then
      return
    end
  end
  -- Add before removing: a set that is empty for a moment would lose its expiry.
  redis.call('ZADD', key, seq, value)
  for _, v in ipairs(old) do
    redis.call('ZREM', key, v)
  end
end

for at = 4, #entries, 5 do
  local seq, insert = tonumber(entries[at]), entries[at + 1] == '1'
  if newest and seq <= newest then
    -- already in the set
  elseif newest and seq == newest + 1 then
    redis.call('ZADD', key, entries[at], entries[at + 2])
    newest, added = seq, true
    if insert then
      message_added = true
    else
      replace_target(entries[at + 3], entries[at + 4])
    end
  elseif insert then
    break
  else
    -- The set lacks the entries before this one, and only a message may start a new set.
    redis.call('DEL', key)
    newest, added, message_added = nil, false, false
  end
  done = done + 1
end

if added then
  redis.call('ZREMRANGEBYRANK', key, 0, -(keep + 1))
end
if message_added then
  redis.call('EXPIRE', key, ttl)
end
return done
