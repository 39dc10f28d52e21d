-- Shared by the scripts that fetch.

-- may_fetch gives what to answer instead of entries; nil if there may be some. mark is what read_new must have counted.
local function may_fetch(meta, lease, main, stats, uid, fence, group, mark)
  local topic = redis.call('HMGET', meta, 'uid', 'consume_paused')
  if topic[1] ~= uid then
    return redis.error_reply('NOTOPIC no such topic')
  end
  if redis.call('GET', lease) ~= fence then
    if redis.pcall('XPENDING', main, group).err then
      return redis.error_reply('NOGROUP no such consumer group')
    end
    return redis.error_reply('FENCED the lease was lost')
  end
  if (redis.call('HGET', stats, 'fetched') or '0') ~= mark then
    return redis.error_reply('BEHIND entries were fetched that the holder may not have')
  end
  return topic[2] == '1' and {0, {}, {}} or nil
end

-- read_new delivers up to n entries of a stream to a consumer, and counts them. The group is there while it has a lease.
local function read_new(stream, stats, group, consumer, n)
  local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', n, 'STREAMS', stream, '>')
  local entries = read and read[1][2] or {}
  if #entries > 0 then
    redis.call('HINCRBY', stats, 'fetched', #entries)
  end
  return entries
end

-- read_main is read_new for the partition's stream. It counts: Redis' own count, the lag, does not survive a restart from the append-only
-- file, nor a promotion (7.0).
local function read_main(main, stats, group, consumer, n)
  local entries = n > 0 and read_new(main, stats, group, consumer, n) or {}
  if #entries > 0 then
    redis.call('HINCRBY', stats, 'read', #entries)
  end
  return entries
end
