-- Shared by the scripts on msg_cache:<channel>.

-- newest_of returns the seq of the set's newest value, or nil if there is no set or if that value
-- is not of the epoch in `head`. A valid value begins with `head`, its seq and a comma.
local function newest_of(key, head)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not last[1] then
    return nil
  end
  local seq = string.format('%.0f', tonumber(last[2]))
  local want = head .. seq .. ','
  if string.sub(last[1], 1, #want) ~= want then
    return nil
  end
  return tonumber(seq)
end

-- changed_seq_of returns a message's changed_seq, the last field of its value. It can't match
-- inside a text, where quotes are escaped.
local function changed_seq_of(value)
  return tonumber(string.match(value, '"changed_seq":(%d+)}$') or '0')
end

-- now_ms returns this server's time in milliseconds since 1970. A script calls it at most once,
-- because two calls may differ.
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
