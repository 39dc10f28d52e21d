-- Shared by the scripts on msg_cache:<channel>.

-- newest_of gives the seq of the set's newest value, or nil if there is no set, or none of the epoch that `head` names.
-- A value begins with `head`, its seq and a comma; one that does not is nothing to build on.
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

-- changed_seq_of gives a message's changed_seq, which is its value's last field. Inside a text the quotes are escaped.
local function changed_seq_of(value)
  return tonumber(string.match(value, '"changed_seq":(%d+)}$') or '0')
end

-- now_ms gives this server's time. A script calls it once at most: two calls may differ.
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
