-- Shared by all scripts on cached messages. A cached set has a state, a JSON object like
--
--   {"epoch":"E","seq":7,"count":5,"unknown":0,"bytes":900}
--
-- seq is the last entry of the log that the messages include, and count the number of messages up
-- to it. unknown is the last change of a message that is not in the set. bytes is the size of the
-- messages.

-- parse_state returns the state in `text`, or nil if it is of another epoch than `head`, or no state.
local function parse_state(text, head)
  if not text or string.sub(text, 1, #head) ~= head then
    return nil
  end
  local seq, count, unknown, bytes = string.match(text, '^(%d+),"count":(%d+),"unknown":(%d+),"bytes":(%d+)}$', #head + 1)
  if not seq then
    return nil
  end
  return { text = text, seq = tonumber(seq), count = tonumber(count), unknown = tonumber(unknown), bytes = tonumber(bytes) }
end

-- state_text returns the JSON of a state.
local function state_text(head, state)
  return head .. string.format('%.0f,"count":%.0f,"unknown":%.0f,"bytes":%.0f}', state.seq, state.count, state.unknown, state.bytes)
end

-- seq_of returns a message's seq as text; '0' if the value is no message.
local function seq_of(value)
  return string.match(value, '^{"epoch":"[^"]*","seq":(%d+),"msg_id":') or '0'
end

-- count_of returns a message's number in the log as text; '0' if the value is no message.
local function count_of(value)
  return string.match(value, '^{"epoch":"[^"]*","seq":%d+,"msg_id":"[^"]*","count":(%d+),') or '0'
end

-- changed_seq_of returns a message's changed_seq, the last field of its value, as text. It can't
-- match inside a text, where quotes are escaped.
local function changed_seq_of(value)
  return string.match(value, '"changed_seq":(%d+)}$') or '0'
end

-- forget subtracts a message that leaves the set from the state.
local function forget(state, value)
  state.bytes = state.bytes - #value
  local changed = changed_seq_of(value)
  if changed ~= seq_of(value) then
    state.unknown = math.max(state.unknown, tonumber(changed))
  end
end

-- now_ms returns this server's time in milliseconds since 1970. A script calls it at most once,
-- because two calls may differ.
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
