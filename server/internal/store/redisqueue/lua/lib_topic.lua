-- Shared by the scripts that make and move groups.

-- count_from counts the entries of a stream from an id on. It looks from both ends at once, so that it costs what the shorter
-- side does.
local function count_from(stream, id)
  local forward, backward, n, passed = id, '(' .. id, 0, 0
  while true do
    local later = redis.call('XRANGE', stream, forward, '+', 'COUNT', 100)
    n = n + #later
    if #later < 100 then
      return n
    end
    forward = '(' .. later[100][1]
    local earlier = redis.call('XREVRANGE', stream, backward, '-', 'COUNT', 100)
    passed = passed + #earlier
    if #earlier < 100 then
      return redis.call('XLEN', stream) - passed
    end
    backward = '(' .. earlier[100][1]
  end
end

-- unread_at counts what a group is yet to read that begins after the id `start`, which may be $.
local function unread_at(stream, start)
  if start == '$' then
    return 0
  end
  if start == '0' then
    return redis.call('XLEN', stream)
  end
  return count_from(stream, after(start))
end

-- make_group makes a group of a stream that is there, which begins after `start`, with an empty stream of retries, unless
-- it is there. What it will never read counts as skipped.
local function make_group(main, meta, delayed, retry, stats, group, start)
  if groups_of(main)[group] then
    return false
  end
  -- Never beyond the stream's last id: what comes then would count as read, and be trimmed.
  if start ~= '$' and start ~= '0' and before(named(redis.call('XINFO', 'STREAM', main))['last-generated-id'], start) then
    start = '$'
  end
  redis.call('DEL', retry, stats)
  redis.call('XGROUP', 'CREATE', retry, group, '0', 'MKSTREAM')
  local taken = redis.call('HMGET', meta, 'produced', 'cancelled')
  local unread = unread_at(main, start)
  local skipped = tonumber(taken[1] or 0) - tonumber(taken[2] or 0) - redis.call('ZCARD', delayed) - unread
  if skipped ~= 0 then
    redis.call('HSET', stats, 'skipped', skipped)
  end
  local read = named(redis.call('XINFO', 'STREAM', main))['entries-added'] - unread
  if read ~= 0 then
    redis.call('HSET', stats, 'read', read)
  end
  -- Last, for it is what makes the group be there.
  redis.call('XGROUP', 'CREATE', main, group, start)
  return true
end
