-- Appends a piece to the text of an open message, and notes when.
--
-- KEYS[1] chat:session:<session>:open  HASH, see redistext.go
-- ARGV[1] msg_id
-- ARGV[2] attempt
-- ARGV[3] seq  of the message
-- ARGV[4] offset  bytes of the text before the piece
-- ARGV[5] piece
-- ARGV[6] ttl  milliseconds from now until the texts may be deleted
-- ARGV[7] max  maximum number of texts
-- ARGV[8] chunk  bytes of a chunk
-- RETURNS how many bytes the text has; if that is less than offset, nothing was appended. -1 if there is a
--         text of a higher attempt, or too many texts.
--
-- Safe to repeat: what is known of a piece is not appended again.
local key, id, attempt, seq, offset, piece, ttl, max, chunk = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local length = 0

-- parse returns attempt, time and length of what is known of a text.
local function parse(meta)
  local its, at, bytes = string.match(meta or '', '^(%d+) %d+ (%d+) (%d+)$')
  return tonumber(its), tonumber(at), tonumber(bytes)
end

-- drop deletes the chunks of a text.
local function drop(of, bytes)
  for n = 0, math.ceil(bytes / chunk) - 1 do
    redis.call('HDEL', key, of .. ':' .. n)
  end
end

-- full reports whether there are too many texts. Those that nobody appends to any more make room.
local function full()
  local texts = 0
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if not string.find(field, ':', 1, true) then
      local _, at, bytes = parse(redis.call('HGET', key, field))
      if not at or now - at > ttl then
        drop(field, bytes or 0)
        redis.call('HDEL', key, field)
      else
        texts = texts + 1
      end
    end
  end
  return texts >= max
end

local meta = redis.call('HGET', key, id)
if meta then
  local its, _, bytes = parse(meta)
  if its and its > attempt then
    return -1
  end
  if its == attempt then
    length = bytes
  else
    drop(id, bytes or 0)
  end
elseif redis.call('HLEN', key) >= max and full() then
  return -1
end
if offset <= length and offset + #piece > length then
  local rest = string.sub(piece, length - offset + 1)
  while #rest > 0 do
    local field, used = id .. ':' .. math.floor(length / chunk), length % chunk
    local part = string.sub(rest, 1, chunk - used)
    rest, length = string.sub(rest, #part + 1), length + #part
    if used > 0 then
      part = (redis.call('HGET', key, field) or '') .. part
    end
    redis.call('HSET', key, field, part)
  end
end
redis.call('HSET', key, id, string.format('%.0f %s %.0f %d', attempt, seq, now, length))
redis.call('PEXPIRE', key, ttl)
return length
