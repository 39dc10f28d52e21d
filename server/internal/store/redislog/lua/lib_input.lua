-- Shared by the scripts that take, move and change messages. Times are doubles, which are exact up to
-- 2^53: microseconds until 2255.

-- due_at returns the due time in ms of a message: 'd<ms>' after now_ms, or 'a<ms>' but not before it.
-- now_ms is rounded up, so that a delay never ends early.
local function due_at(when, now_ms)
  local ms = tonumber(string.sub(when, 2))
  return string.sub(when, 1, 1) == 'd' and now_ms + ms or math.max(now_ms, ms)
end

-- first_due returns the due time in ms of the first scheduled message, or nil if there is none.
local function first_due(delayed)
  local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- wake publishes the partition's name if the first scheduled message is due earlier than `old`
-- (first_due before the change), or now. A script calls it once, at its end.
local function wake(delayed, old, now_ms, channel, partition)
  local first = first_due(delayed)
  if first and (not old or first < old or first <= now_ms) then
    redis.call('PUBLISH', channel, partition)
  end
end

-- note_size stores the size of a record that a reader should know of before it reads it.
local function note_size(sizes, ord, size)
  if size > 4096 then
    local chunk = size_field(ord)
    if size > tonumber(redis.call('HGET', sizes, chunk) or '0') then
      redis.call('HSET', sizes, chunk, size)
    end
  end
end

-- unsettled returns how many messages of the log the slowest of n groups has not settled, whose states
-- begin at keys[at]. It returns nil if a state is lost.
local function unsettled(keys, at, n, ord)
  local most = 0
  for i = at, at + n - 1 do
    local state = redis.call('HMGET', keys[i], 'sent', 'open')
    local sent = string.match(state[1] or '', '%-(%d+)$')
    if not sent then
      return nil
    end
    most = math.max(most, ord - tonumber(sent) + tonumber(state[2] or '0'))
  end
  return most
end

-- drop_oldest removes what is more than the bound, and of an old overhang at most 1,000 a call.
local function drop_oldest(main, delayed, max, stored)
  local length = redis.call('XLEN', main)
  local over = math.min(length + redis.call('ZCARD', delayed) - max, stored + 1000, length)
  if over > 0 then
    redis.call('XTRIM', main, 'MAXLEN', '=', length - over)
  end
end
