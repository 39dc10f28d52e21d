-- Creates a group in a partition, moves it, or removes it.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta           HASH
-- KEYS[3] S:g:<group>      HASH
-- KEYS[4] S:g:<group>:open HASH
-- KEYS[5] S:g:<group>:rows HASH
-- KEYS[6] S:g:<group>:due  ZSET
-- ARGV[1] uid
-- ARGV[2] group
-- ARGV[3] what   make, seek or remove
-- ARGV[4] start  '-' the beginning, '$' the end, or a µs
-- ARGV[5] epoch  of the caller's lease, to seek
-- RETURNS 1 if something was changed, else 0. Errors: NOTOPIC (not to remove), NOGROUP and FENCED (to
--         seek).
--
-- Safe to repeat: a repeated seek is FENCED.
local main, meta, state, open, rows, due, uid, group, what, start, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'groups')
if head[1] ~= uid then
  return what == 'remove' and 0 or redis.error_reply('NOTOPIC')
end
local groups = head[4] or ''

if what == 'remove' then
  local left = without_name(groups, group)
  if redis.call('UNLINK', state, open, rows, due) == 0 and left == groups then
    return 0
  end
  redis.call('HSET', meta, 'groups', left)
  redis.call('HINCRBY', meta, 'gv', 1)
  return 1
end

local place, base = place_of(main, tonumber(head[2]), tonumber(head[3]), start)
local stored = redis.call('HMGET', state, 'uid', 'epoch')
if what == 'make' then
  local all, added = with_name(groups, group)
  if stored[1] and not added then
    return 0
  end
  if not stored[1] then
    set_group(state, uid, '0', place, base)
  end
  redis.call('HSET', meta, 'groups', all)
  redis.call('HINCRBY', meta, 'gv', 1)
  return 1
end

if not stored[1] then
  return redis.error_reply('NOGROUP')
end
if stored[2] ~= epoch then
  return redis.error_reply('FENCED')
end
redis.call('UNLINK', state, open, rows, due)
-- A higher epoch: a late copy of a commit must not put the group back to where it was.
set_group(state, uid, text(math.max(tonumber(epoch) + 1, now_us())), place, base)
redis.call('HINCRBY', meta, 'gv', 1)
return 1
