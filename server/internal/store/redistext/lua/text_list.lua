-- Reads the texts of a session's open messages.
--
-- KEYS[1] chat:session:<session>:open  HASH, see redistext.go
-- ARGV[1] msg_id  of the only one whose age is wanted, or empty for all texts
-- ARGV[2] chunk  bytes of a chunk
-- RETURNS for each message: its id, attempt, seq, the milliseconds since the last piece, and the text, which is
--         empty if only the age is wanted.
local key, only, chunk = KEYS[1], ARGV[1], tonumber(ARGV[2])

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local found = {}

-- add adds a text, of whose chunks those in values are known.
local function add(id, meta, values)
  local attempt, seq, at, length = string.match(meta or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not attempt then
    return
  end
  local chunks = {}
  for n = 0, math.ceil(tonumber(length) / chunk) - 1 do
    chunks[n + 1] = values[id .. ':' .. n] or ''
  end
  for _, value in ipairs({id, attempt, seq, string.format('%.0f', math.max(now - tonumber(at), 0)), table.concat(chunks)}) do
    found[#found + 1] = value
  end
end

if only ~= '' then
  add(only, redis.call('HGET', key, only), {})
  return found
end
local fields = redis.call('HGETALL', key)
local values = {}
for i = 1, #fields, 2 do
  values[fields[i]] = fields[i + 1]
end
for i = 1, #fields, 2 do
  if not string.find(fields[i], ':', 1, true) then
    add(fields[i], fields[i + 1], values)
  end
end
return found
