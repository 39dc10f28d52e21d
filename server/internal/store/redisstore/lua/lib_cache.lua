-- Shared by the scripts on msg_cache:<channel>, a ZSET of three kinds of members:
--
--   score > 0  a message, at its seq
--   score = 0  the set's state: how far the messages include the log (see state_of)
--   score < 0  "c:<seq>" of a message that was edited or recalled, at minus its changed_seq

-- state_of returns the set's state, or nil if there is no set or if it is of another epoch than
-- `head`. seq is the last entry that the messages include, and count the number of messages up to
-- it. unknown is the last edit or recall of a message that is not in the set. bytes is the size of
-- the messages.
local function state_of(key, head)
  local text = redis.call('ZRANGEBYSCORE', key, 0, 0)[1]
  if not text or string.sub(text, 1, #head) ~= head then
    return nil
  end
  local seq, count, unknown, bytes = string.match(text, '^(%d+),"count":(%d+),"unknown":(%d+),"bytes":(%d+)}$', #head + 1)
  if not seq then
    return nil
  end
  return { text = text, seq = tonumber(seq), count = tonumber(count), unknown = tonumber(unknown), bytes = tonumber(bytes) }
end

-- save writes the set's state. It adds before it removes: a set that is empty for a moment would
-- lose its expiry.
local function save(key, head, state)
  local text = head .. string.format('%.0f,"count":%.0f,"unknown":%.0f,"bytes":%.0f}', state.seq, state.count, state.unknown, state.bytes)
  if text ~= state.text then
    redis.call('ZADD', key, 0, text)
    if state.text then
      redis.call('ZREM', key, state.text)
    end
  end
end

-- changed_seq_of returns a message's changed_seq, the last field of its value, as text. It can't
-- match inside a text, where quotes are escaped.
local function changed_seq_of(value)
  return string.match(value, '"changed_seq":(%d+)}$') or '0'
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
    local seq = string.match(value, '^{"epoch":"[^"]*","seq":(%d+),')
    redis.call('ZREM', key, value, 'c:' .. seq)
    state.bytes = state.bytes - #value
    n = n - 1
    local changed = changed_seq_of(value)
    if changed ~= seq then
      state.unknown = math.max(state.unknown, tonumber(changed))
    end
  end
end

-- now_ms returns this server's time in milliseconds since 1970. A script calls it at most once,
-- because two calls may differ.
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
