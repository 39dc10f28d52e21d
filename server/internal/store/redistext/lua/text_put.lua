-- Appends a piece to the text of an open message, and notes when.
--
-- KEYS[1] chat:session:<session>:open  HASH, see keys.go
-- ARGV[1] msg_id
-- ARGV[2] attempt
-- ARGV[3] seq  of the message
-- ARGV[4] offset  bytes of the text before the piece
-- ARGV[5] piece
-- ARGV[6] ttl  milliseconds from now until the texts may be deleted
-- ARGV[7] max  maximum number of texts
-- RETURNS how many bytes the text has; if that is less than offset, nothing was appended. -1 if there is a
--         text of a higher attempt, or too many texts.
--
-- Safe to repeat: what is known of a piece is not appended again.
local key, id, attempt, seq, offset, piece, ttl, max = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local text_field = id .. ':text'
local known, text = nil, ''

local meta = redis.call('HGET', key, id)
if meta then
  known = tonumber(string.match(meta, '^(%d+) '))
  if known > attempt then
    return -1
  end
elseif redis.call('HLEN', key) >= 2 * max then
  -- Texts that nobody appends to any more make room.
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local at = string.match(all[i + 1], '^%d+ %d+ (%d+)$')
    if at and not string.find(all[i], ':', 1, true) and now - tonumber(at) > ttl then
      redis.call('HDEL', key, all[i], all[i] .. ':text')
    end
  end
  if redis.call('HLEN', key) >= 2 * max then
    return -1
  end
end
if known == attempt then
  text = redis.call('HGET', key, text_field) or ''
end
local grown = known ~= attempt
if offset <= #text and offset + #piece > #text then
  text, grown = text .. string.sub(piece, #text - offset + 1), true
end
redis.call('HSET', key, id, string.format('%.0f %s %.0f', attempt, seq, now))
if grown then
  redis.call('HSET', key, text_field, text)
end
redis.call('PEXPIRE', key, ttl)
return #text
