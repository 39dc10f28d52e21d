-- Brings a partition in line with the settings of its topic: creates it or what is absent of it, and
-- removes the groups that the settings do not have.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta  HASH
-- KEYS[3...] S:g:<group>  HASH of each group of the settings; then of each group that is to be removed
--         S:g:<group>  HASH, S:g:<group>:open  HASH, S:g:<group>:rows  HASH, S:g:<group>:due  ZSET
-- ARGV[1] uid
-- ARGV[2] version  of the topic's settings
-- ARGV[3] doc      a copy of them
-- ARGV[4] paused   1 if the topic accepts no messages
-- ARGV[5] groups   how many the settings have
-- ARGV[6...] the name of each and its start ('-' the beginning, '$' the end, or a µs), then the names
--         of those that are to be removed
-- RETURNS 1. Errors: NOTOPIC if it is the partition of another topic of the name, CONFLICT if it has
--         later settings.
--
-- Safe to repeat.
local main, meta, keys, uid, version, doc, paused, n_groups, args = KEYS[1], KEYS[2], KEYS, ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5]), ARGV

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'version', 'gv', 'groups')
if head[1] and head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if tonumber(head[4] or '0') > tonumber(version) then
  return redis.error_reply('CONFLICT')
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
-- A version of the groups that was lost must not come again, or a stale view of the groups could delete
-- messages.
redis.call('HSET', meta, 'uid', uid, 'last', text(last), 'ord', text(ord), 'gv', head[5] or text(now), 'version', version, 'doc', doc)
if paused then
  redis.call('HSET', meta, 'paused', '1')
else
  redis.call('HDEL', meta, 'paused')
end

local known, changed = {}, false
for name in string.gmatch(head[6] or '', '%S+') do
  known[name] = true
end
local names = {}
for i = 1, n_groups do
  local state, name, start = keys[i + 2], args[4 + 2 * i], args[5 + 2 * i]
  if redis.call('HEXISTS', state, 'uid') == 0 then
    -- The partition had the group before, and lost it, unless it has its settings and they do not name
    -- the group. The holder of a lost group acquires it anew (epoch 0) with what it remembers. The
    -- holder of a deleted group of the name must not.
    local created = head[1] and not known[name]
    local place, base = place_of(main, last, ord, created and start or '-')
    set_group(state, uid, created and text(now) or '0', place, base)
    changed = true
  end
  names[i], changed = name, changed or not known[name]
  known[name] = nil
end
for at = 6 + 2 * n_groups, #args do
  local first = 3 + n_groups + 4 * (at - 6 - 2 * n_groups)
  redis.call('UNLINK', keys[first], keys[first + 1], keys[first + 2], keys[first + 3])
  changed = true
  known[args[at]] = nil
end
for name in pairs(known) do -- groups that came after the caller had looked for those to remove
  names[#names + 1] = name
end
if changed then
  redis.call('HSET', meta, 'groups', table.concat(names, ' '))
  redis.call('HINCRBY', meta, 'gv', 1)
end
return 1
