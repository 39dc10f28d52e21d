-- Removes the oldest messages that every group has settled and that retention does not keep.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta   HASH
-- KEYS[3] S:sizes  HASH
-- KEYS[4] S:moved  ZSET message id -> µs in the log
-- KEYS[5] S:replayed  ZSET
-- KEYS[6...] S:g:<group>  HASH of each group of the partition
-- ARGV[1] uid
-- ARGV[2] gv        the version of the set of groups that the keys are from
-- ARGV[3] n         how many messages at most, from 100 on
-- ARGV[4] age ms    how long settled messages stay
-- ARGV[5] messages  the most of them that stay; 0 for no bound
-- RETURNS how many messages were removed. Errors: NOTOPIC, STALE.
--
-- Safe to repeat.
local main, meta, sizes, moved, replayed, keys, uid, gv, n, age, messages = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local head = redis.call('HMGET', meta, 'uid', 'gv')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if head[2] ~= gv then
  return redis.error_reply('STALE')
end

-- The first µs that some group may still need. Nothing is removed without groups, nor while the state
-- of one is lost.
local floor
for i = 6, #keys do
  local cursor = string.match(redis.call('HGET', keys[i], 'cursor') or '', '^(%d+)')
  if not cursor then
    return 0
  end
  floor = math.min(floor or math.huge, tonumber(cursor) + 1)
end
if not floor then
  return 0
end

-- trim_oldest removes `count` of the messages below a µs. The last few are read to find where they end,
-- within 1 MiB.
local function trim_oldest(us, count)
  local removed = count >= 100 and redis.call('XTRIM', main, 'MINID', '~', text(us), 'LIMIT', count) or 0
  local rest, largest = math.min(count - removed, 100), 4096
  if rest <= 0 then
    return removed
  end
  for _, size in ipairs(redis.call('HVALS', sizes)) do
    largest = math.max(largest, tonumber(size) or 0)
  end
  local found = redis.call('XRANGE', main, '-', text(us - 1), 'COUNT', math.max(1, math.min(rest, math.floor(1048576 / largest))))
  if #found == 0 then
    return removed
  end
  local end_us = string.match(found[#found][1], '^%d+')
  return removed + redis.call('XTRIM', main, 'MINID', '=', text(tonumber(end_us) + 1))
end

local removed
if age == 0 then
  removed = trim_below(main, floor, n)
else
  removed = trim_below(main, math.min(floor, math.max(now_us() - age * 1000, 0)), n)
  if messages > 0 then
    local over = redis.call('XLEN', main) - messages
    if over > 0 and removed < n then
      removed = removed + trim_oldest(floor, math.min(over, n - removed))
    end
  end
end
if removed > 0 then
  forget_before_log(main, sizes, moved, replayed)
end
return removed
