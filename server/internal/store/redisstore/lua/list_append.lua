-- Applies entries to a session's cached messages, as long as they follow the newest one there. Values
-- are opaque bytes: decoding and encoding them here would corrupt large numbers and empty lists.
--
-- KEYS[1] chat:session:<id>:messages  LIST, see lib_list.lua
-- ARGV[1] head  the beginning of every value of this epoch, up to its seq
-- ARGV[2] keep  maximum number of messages in the list
-- ARGV[3] max   bytes  maximum size of the messages in the list, which has at least one
-- ARGV[4] ttl   seconds from the last message to the list's expiry
-- ARGV[5...]    for each entry, in order: its seq; the number of messages up to it; 1 for an insert,
--               0 for an edit, recall or close; the seq of its message; the value of that message
-- RETURNS how many entries were handled, from the front. The next one is an insert that does not
--         follow the list.
--
-- Safe to repeat: an entry at or before the end of the list changes nothing, not even the expiry.
local key, head, keep, max, ttl, entries = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV

local state = state_of(key, head)
local done, applied, message_added = 0, false, false

-- replace puts a changed message in the place of the older one. It returns false if the list does
-- not have the message, and nil if the list is damaged.
local function replace(seq, value)
  local length = redis.call('LLEN', key)
  local at = length > 1 and first_after(key, length, tonumber(seq) - 1)
  if not at then
    return nil
  end
  local old = at < length and redis.call('LINDEX', key, at)
  if not old or seq_of(old) ~= seq then
    return false
  end
  if tonumber(changed_seq_of(old)) < tonumber(changed_seq_of(value)) then
    redis.call('LSET', key, at, value)
    state.bytes = state.bytes + #value - #old
  end
  return true
end

for at = 5, #entries, 5 do
  local seq, insert, target, value = tonumber(entries[at]), entries[at + 2] == '1', entries[at + 3], entries[at + 4]
  if state and seq <= state.seq then
    -- already in the list
  elseif state and seq == state.seq + 1 and insert then
    redis.call('RPUSH', key, value)
    state.bytes, message_added = state.bytes + #value, true
    state.seq, state.count, applied = seq, tonumber(entries[at + 1]), true
  elseif insert then
    break
  else
    local found = nil
    if state and seq == state.seq + 1 then
      found = target ~= '0' and replace(target, value)
    end
    if found == nil then
      -- The list lacks the entries before this one, or is damaged. Only a message may start a new one.
      redis.call('DEL', key)
      state, message_added = nil, false
    else
      if not found and target ~= '0' then
        state.unknown = seq
      end
      state.seq, state.count, applied = seq, tonumber(entries[at + 1]), true
    end
  end
  done = done + 1
end

if state and applied then
  save(key, head, state, keep, max)
end
if message_added then
  redis.call('EXPIRE', key, ttl)
end
return done
