-- Makes a node the holder of a group's lease, under a new epoch.
--
-- KEYS[1] S:g:<group>  HASH
-- KEYS[2] S:meta       HASH
-- KEYS[3] S:sizes      HASH
-- ARGV[1] uid
-- ARGV[2] node
-- ARGV[3] epoch  that the caller saw
-- RETURNS {epoch, now µs, last µs, last ord, gv, the state's fields, four sizes as commit returns them,
--          1 if the lease was given back and each delivery has a row, or 0}.
--         Errors: NOTOPIC, NOGROUP, HELD.
--
-- Safe to repeat: a repeat is HELD.
local state, meta, sizes, uid, node, expected = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'gv')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
local stored = redis.call('HMGET', state, 'uid', 'epoch', 'sent', 'holder', 'unsure')
if stored[1] ~= uid or not stored[3] then
  return redis.error_reply('NOGROUP')
end
if (stored[2] or '0') ~= expected then
  return redis.error_reply('HELD')
end
-- At least the time, so that an epoch does not come again after Redis lost writes.
local now = now_us()
local epoch = text(math.max(tonumber(expected) + 1, now))
redis.call('HSET', state, 'holder', node, 'epoch', epoch)
return {
  epoch, text(now), head[2] or '0', head[3] or '0', head[4] or '0', redis.call('HGETALL', state), largest_after(sizes, stored[3]),
  (stored[4] or '') == '' and not stored[5] and 1 or 0,
}
