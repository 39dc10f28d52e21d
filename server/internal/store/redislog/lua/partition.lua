-- Creates a partition, or what is absent of it.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta  HASH
-- KEYS[3...] S:g:<group>  HASH of each group
-- ARGV[1] uid
-- ARGV[2] version  of the topic's settings
-- ARGV[3] doc      a copy of them
-- ARGV[4] paused   1 if the topic accepts no messages
-- ARGV[5...] the names of the groups
-- RETURNS 1. Errors: NOTOPIC if it is the partition of another topic of the name.
--
-- Safe to repeat. A late call with older settings leaves the newer ones.
local main, meta, keys, uid, version, doc, paused, args = KEYS[1], KEYS[2], KEYS, ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'version', 'gv', 'groups')
if head[1] and head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
local now = now_us()
local last, ord = tonumber(head[2] or text(now)), tonumber(head[3] or '0')
local stream = redis.pcall('XINFO', 'STREAM', main)
if not stream.err then
  local us, top = string.match(named(stream)['last-generated-id'], '^(%d+)-(%d+)$')
  if tonumber(us) > last or not head[3] then
    last, ord = math.max(last, tonumber(us)), tonumber(top)
  end
end
-- A version that was lost must not come again, or a stale view of the groups could delete messages.
local gv, groups = head[5] or text(now), head[6] or ''
redis.call('HSET', meta, 'uid', uid, 'last', text(last), 'ord', text(ord), 'gv', gv)
if not head[4] or tonumber(head[4]) <= tonumber(version) then
  redis.call('HSET', meta, 'version', version, 'doc', doc)
  if paused then
    redis.call('HSET', meta, 'paused', '1')
  else
    redis.call('HDEL', meta, 'paused')
  end
end

local changed, added = false, false
for i = 5, #args do
  local state = keys[i - 2]
  if redis.call('HEXISTS', state, 'uid') == 0 then
    local place, base = place_of(main, last, ord, '-')
    set_group(state, uid, '0', place, base)
    changed = true
  end
  groups, added = with_name(groups, args[i])
  changed = changed or added
end
if changed then
  redis.call('HSET', meta, 'groups', groups)
  redis.call('HINCRBY', meta, 'gv', 1)
end
return 1
