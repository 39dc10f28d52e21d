-- Shared by the scripts on chat:session:<id>:messages, a LIST: first its state, see lib_state.lua,
-- then the messages, the oldest first. There is at least one.

-- state_of returns the list's state, or nil if there is no list or if it is of another epoch than
-- `head`.
local function state_of(key, head)
  return parse_state(redis.call('LINDEX', key, 0), head)
end

-- first_after returns the index of the first message after seq; the list's length if there is none.
-- It returns nil if the list is damaged: messages have consecutive counts, and one that was read is
-- not in its place.
local function first_after(key, length, seq)
  local low, high, base = 1, length, count_of(redis.call('LINDEX', key, 1)) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local value = redis.call('LINDEX', key, middle)
    if count_of(value) - base ~= middle then
      return nil
    end
    if tonumber(seq_of(value)) > seq then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- save removes the oldest messages beyond `keep` messages and `max` bytes, but not the last one, and
-- writes the list's state in the place of the old one. The list is never empty, so it keeps its
-- expiry.
local function save(key, head, state, keep, max)
  redis.call('LPOP', key)
  local n, drop = redis.call('LLEN', key), 0
  while n - drop > 1 and (n - drop > keep or state.bytes > max) do
    forget(state, redis.call('LINDEX', key, drop))
    drop = drop + 1
  end
  redis.call('LTRIM', key, drop, -1)
  redis.call('LPUSH', key, state_text(head, state))
end
