-- Removes the oldest messages of a log, whether groups have settled them or not.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta      HASH
-- KEYS[3] S:sizes     HASH
-- KEYS[4] S:moved     ZSET
-- KEYS[5] S:replayed  ZSET
-- KEYS[6...] of each group S:g:<group> and S:g:<group>:open, both HASH
-- ARGV[1] uid
-- ARGV[2] gv    the version of the set of groups that the keys are from
-- ARGV[3] n     how many messages at most, from 200 on
-- ARGV[4] keep  how many of the newest stay, or -1
-- ARGV[5] age ms  else how old those are at most that stay
-- ARGV[6...] the names of the groups
-- RETURNS {how many were removed, how many of them groups had not settled: one counts once for each
--         group, 1 if there may be more}. Errors: NOTOPIC, STALE.
--
-- Safe to repeat. The states of groups are not changed: their lease holders find out what is missing.
local main, meta, sizes, moved, replayed, keys, uid, gv, n, keep, age, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

local head = redis.call('HMGET', meta, 'uid', 'gv', 'last', 'ord')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if (head[2] or '0') ~= gv then
  return redis.error_reply('STALE')
end

-- first returns the position of the first message, or behind the last one.
local function first()
  local entry = redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1]
  if not entry then
    return tonumber(head[3] or '0') + 1, tonumber(head[4] or '0') + 1
  end
  local us, ord = string.match(entry[1], '^(%d+)-(%d+)$')
  return tonumber(us), tonumber(ord)
end

local from_us, from_ord = first()
local removed, more = 0, 0
if keep >= 0 then
  local length = redis.call('XLEN', main)
  local over = math.max(length - keep, 0)
  removed = over > 0 and redis.call('XTRIM', main, 'MAXLEN', '=', length - math.min(over, n)) or 0
  more = over > n and 1 or 0
else
  local us = math.max(now_us() - age * 1000, 0)
  removed = trim_below(main, us, n)
  more = removed > 0 and removed + 100 > n and 1 or 0
end
if removed == 0 then
  return {0, 0, more}
end
local to_us, to_ord = first()

-- open_between returns how many open ordinals are within bounds.
local function open_between(open, low, high)
  local count = 0
  for chunk = math.floor(low / 1024), math.floor(high / 1024) do
    for a, b in string.gmatch(redis.call('HGET', open, 'n' .. text(chunk)) or '', '(%d+)%-?(%d*)') do
      a, b = math.max(tonumber(a), low), math.min(tonumber(b) or tonumber(a), high)
      count = count + math.max(b - a + 1, 0)
    end
  end
  return count
end

local lost = 0
for i = 6, #args do
  local state, open = keys[2 * i - 6], keys[2 * i - 5]
  local fields = redis.call('HMGET', state, 'cursor', 'sent')
  local cursor_ord = tonumber(string.match(fields[1] or '', '%-(%d+)$'))
  local sent_us, sent_ord = string.match(fields[2] or '', '^(%d+)-(%d+)$')
  if cursor_ord and sent_us then
    sent_us, sent_ord = tonumber(sent_us), tonumber(sent_ord)
    local unsent = to_ord - math.max(sent_ord + 1, from_ord)
    if unsent > 0 then
      lost = lost + unsent - replayed_elsewhere(replayed, args[i], math.max(sent_us, from_us - 1), to_us - 1)
    end
    local low, high = math.max(cursor_ord + 1, from_ord), math.min(sent_ord, to_ord - 1)
    if low <= high then
      lost = lost + open_between(open, low, high)
    end
  end
end
forget_before_log(main, sizes, moved, replayed)
return {removed, lost, more}
