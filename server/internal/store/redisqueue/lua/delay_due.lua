-- Moves messages whose time has come to the stream that they are fetched from, in the order of their times.
--
-- KEYS[1] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[2] :delayed or :g:<group>:retrying  ZSET message -> due ms; of a message that is there twice "<message>/<entry>"
-- KEYS[3] :delayed:data or :g:<group>:retrying:data  HASH the same -> item
-- KEYS[4] the partition's stream or :g:<group>:retry  STREAM
-- ARGV[1] uid
-- ARGV[2] n  how many at most
-- ARGV[3] scheduled  1 for scheduled messages, whose due time is kept; 0 for retries
-- RETURNS how many were moved; ms until the next is due, 0 if it is, -1 if none waits. Errors: NOTOPIC, NOGROUP.
--
-- Safe to repeat: what was moved is not there any more.
local meta, line, data, stream, uid, n, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3] == '1'

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local now, moved = now_ms(), 0
local due = redis.call('ZRANGE', line, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, n, 'WITHSCORES')
for at = 1, #due, 2 do
  local member = due[at]
  local item = redis.call('HGET', data, member)
  if item then
    if scheduled then
      local a, i, _, k, d = unpack_item(item)
      item = a and pack_item(a, i, text(tonumber(due[at + 1])), k, d) or item
    end
    if not append_item(stream, item, string.match(member, '^[^/]+')) then
      return redis.error_reply('NOGROUP')
    end
    moved = moved + 1
  end
  -- Each right behind its entry: an error further down leaves no entry whose message waits still.
  redis.call('ZREM', line, member)
  redis.call('HDEL', data, member)
end
local first = first_due(line)
return {moved, first and math.max(first - now, 0) or -1}
