-- Moves scheduled messages that are due to the end of the log, in the order of their due times.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta          HASH
-- KEYS[3] S:sizes         HASH
-- KEYS[4] S:delayed       ZSET message id -> due ms
-- KEYS[5] S:delayed:data  HASH message id -> record
-- KEYS[6] S:moved         ZSET message id -> µs in the log
-- ARGV[1] uid
-- ARGV[2] budget  bytes of records; a single record may be larger
-- ARGV[3] n       how many at most
-- RETURNS how many were moved; ms until the next is due, 0 if it is, -1 if there is none. Errors: NOTOPIC.
--
-- Safe to repeat: what was moved is not scheduled any more.
local main, meta, sizes, delayed, data, moved, uid, budget, n = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord')
local last, ord = tonumber(head[2]), tonumber(head[3])
if head[1] ~= uid or not last or not ord then
  return redis.error_reply('NOTOPIC')
end
local now = now_us()
local now_ms = math.floor(now / 1000)
local due = redis.call('ZRANGE', delayed, '-inf', text(now_ms), 'BYSCORE', 'LIMIT', 0, n, 'WITHSCORES')
local us, count, bytes = math.max(last + 1, now), 0, 0
for at = 1, #due, 2 do
  local id = due[at]
  local size = redis.call('HSTRLEN', data, id)
  bytes = bytes + size
  if count > 0 and bytes > budget then
    break
  end
  local record = redis.call('HGET', data, id)
  if record then
    ord = ord + 1
    local added = redis.pcall('XADD', main, string.format('%d-%d', us, ord), 'd', record, 'i', id, 't', text(tonumber(due[at + 1])))
    if added.err then
      return count == 0 and redis.error_reply('NOTOPIC') or error(added.err)
    end
    redis.call('ZADD', moved, text(us), id)
    -- At once: an error further down must not let the next call move this message again.
    redis.call('HSET', meta, 'last', text(us), 'ord', text(ord))
    redis.call('HDEL', data, id)
    note_size(sizes, ord, size)
    us, count = us + 1, count + 1
  end
  redis.call('ZREM', delayed, id)
end
local first = first_due(delayed)
return {count, first and math.max(first - now_ms, 0) or -1}
