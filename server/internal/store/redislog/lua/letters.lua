-- Lists dead letters, the newest first.
--
-- KEYS[1] S:meta      HASH
-- KEYS[2] S:dlq       STREAM
-- KEYS[3] S:dlq:data  HASH
-- ARGV[1] uid
-- ARGV[2] before  "+", or "(" and the ID of a dead letter
-- ARGV[3] group   whose dead letters; empty for all
-- ARGV[4] code    empty for all
-- ARGV[5] n       how many at most
-- ARGV[6] full    1 to return the records
-- ARGV[7] budget  bytes of headers that are looked at, and of records; a single record may be larger
-- RETURNS {the last ID that was looked at or empty, 1 if there may be more, and of each dead letter its
--         ID, its header, and its record if full; false if it has none}. Errors: NOTOPIC.
local meta, dlq, data, uid, before, group, code, n, full, budget = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local answer, count, looked, bytes, headers = {'', 0}, 0, 0, 0, 0
-- add puts a dead letter into the answer, if there is room.
local function add(entry, fields)
  if (group ~= '' and fields.g ~= group) or (code ~= '' and fields.c ~= code) then
    return true
  end
  local record = false
  if full then
    bytes = bytes + redis.call('HSTRLEN', data, entry[1])
  end
  if count == n or (count > 0 and bytes > budget) then
    return false
  end
  if full then
    record = redis.call('HGET', data, entry[1])
  end
  count = count + 1
  answer[#answer + 1] = {entry[1], entry[2], record}
  return true
end

local from = before
while true do
  local found = redis.call('XREVRANGE', dlq, from, '-', 'COUNT', 100)
  for _, entry in ipairs(found) do
    if not add(entry, named(entry[2])) then
      answer[2] = 1
      return answer
    end
    answer[1], looked, headers = entry[1], looked + 1, headers + size_of(entry[2])
  end
  if #found < 100 then
    return answer
  end
  if looked >= 1000 or headers >= budget then
    answer[2] = 1
    return answer
  end
  from = '(' .. answer[1]
end
