-- Shared by all scripts. Times, positions and generations are doubles here, exact up to 2^53.

-- now_ms returns this server's time in ms since 1970, rounded down.
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- text returns a whole number as Redis writes it; Lua's own conversion loses digits after the 14th.
local function text(n)
  return string.format('%.0f', n)
end

-- head returns the begin of the reply of every script that reads a shard: the time, the epoch or '',
-- the position of the last entry of the log and its time, when the epoch began, and when it was
-- settled. A time is 0 if there is none.
local function head(meta, now)
  local epoch, seq, last, opened, settled = unpack(redis.call('HMGET', meta, 'epoch', 'seq', 'last', 'opened', 'settled'))
  return {now, epoch or '', tonumber(seq or 0), tonumber(last or 0), tonumber(opened or 0), tonumber(settled or 0)}
end

-- begin_epoch replaces a shard's epoch. The states and the fences stay.
local function begin_epoch(meta, log, epoch, now)
  local old = {'settled', 'last'}
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.sub(field, 1, 2) == 'r:' then
      old[#old + 1] = field
    end
  end
  redis.call('HDEL', meta, unpack(old))
  redis.call('DEL', log)
  redis.call('HSET', meta, 'epoch', epoch, 'seq', '0', 'opened', text(now))
end

-- admit returns 'LATE', 'FENCED' or 'EPOCH' if a node's step must change nothing. Otherwise it returns
-- nil, the position of the log's last entry and its time or 0, and whether the epoch is settled.
local function admit(meta, now, not_after, node, sweep, expected)
  if now > tonumber(not_after) then
    return 'LATE'
  end
  local epoch, seq, last, fence, settled = unpack(redis.call('HMGET', meta, 'epoch', 'seq', 'last', 'dead:' .. node, 'settled'))
  if fence and not sweep then
    return 'FENCED'
  end
  if epoch ~= expected then
    return 'EPOCH'
  end
  return nil, tonumber(seq), tonumber(last or 0), settled and true or false
end

-- append adds lines of the time now to the log and keeps the newest `length`. seq is the position of
-- the last line.
local function append(meta, log, seq, now, lines, length)
  if #lines > 0 then
    redis.call('RPUSH', log, unpack(lines))
    redis.call('LTRIM', log, '-' .. length, -1)
    redis.call('HSET', meta, 'seq', text(seq), 'last', text(now))
  end
end
