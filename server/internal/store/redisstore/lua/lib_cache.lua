-- Shared by the scripts on msg_cache:<channel>, a ZSET of three kinds of members:
--
--   score > 0  a message, at its seq
--   score = 0  the set's state, see lib_state.lua
--   score < 0  "c:<seq>" of a message that was edited or recalled, at minus its changed_seq

-- state_of returns the set's state, or nil if there is no set or if it is of another epoch than
-- `head`.
local function state_of(key, head)
  return parse_state(redis.call('ZRANGEBYSCORE', key, 0, 0)[1], head)
end

-- save writes the set's state. It adds before it removes: a set that is empty for a moment would
-- lose its expiry.
local function save(key, head, state)
  local text = state_text(head, state)
  if text ~= state.text then
    redis.call('ZADD', key, 0, text)
    if state.text then
      redis.call('ZREM', key, state.text)
    end
  end
end

-- mark adds the member for the last change of the message at seq, if it was changed.
local function mark(key, seq, value)
  local changed = changed_seq_of(value)
  if changed ~= seq then
    redis.call('ZADD', key, '-' .. changed, 'c:' .. seq)
  end
end

-- trim removes the oldest messages beyond `keep` messages and `max` bytes, but not the last one.
local function trim(key, state, keep, max)
  local n = redis.call('ZCOUNT', key, 1, '+inf')
  while n > 1 and (n > keep or state.bytes > max) do
    local value = redis.call('ZRANGEBYSCORE', key, 1, '+inf', 'LIMIT', 0, 1)[1]
    redis.call('ZREM', key, value, 'c:' .. seq_of(value))
    n = n - 1
    forget(state, value)
  end
end
