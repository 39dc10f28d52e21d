-- Shared by the scripts that remove messages from the log.

-- trim_below removes up to about `most` messages below a µs: whole nodes of the stream, and then the
-- rest of a node (100 messages) if that is not too many. It reads no message.
local function trim_below(main, us, most)
  local removed = redis.call('XTRIM', main, 'MINID', '~', text(us), 'LIMIT', most)
  if removed + 100 <= most then
    removed = removed + redis.call('XTRIM', main, 'MINID', '=', text(us))
  end
  return removed
end

-- forget_before_log removes what is kept about messages that have left the log at its beginning.
local function forget_before_log(main, sizes, moved, replayed)
  local length, notes = redis.call('XLEN', main), redis.call('HLEN', sizes)
  if redis.call('ZCARD', moved) == 0 and redis.call('ZCARD', replayed) == 0 and notes <= 2 * math.floor(length / 256) + 16 then
    return
  end
  if length == 0 then
    redis.call('UNLINK', sizes, moved, replayed)
    return
  end
  local us, ord = string.match(redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1][1], '^(%d+)-(%d+)$')
  redis.call('ZREMRANGEBYSCORE', moved, '-inf', '(' .. us)
  forget_replayed(replayed, tonumber(us))
  if notes <= 2 * math.floor(length / 256) + 16 then
    return
  end
  for _, field in ipairs(redis.call('HKEYS', sizes)) do
    if tonumber(string.match(field, '%d+')) < math.floor(tonumber(ord) / 256) then
      redis.call('HDEL', sizes, field)
    end
  end
end
