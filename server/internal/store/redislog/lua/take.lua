-- Reads dead letters with their records, by their IDs or the oldest first.
--
-- KEYS[1] S:meta      HASH
-- KEYS[2] S:dlq       STREAM
-- KEYS[3] S:dlq:data  HASH
-- ARGV[1] uid
-- ARGV[2] after   the ID after which to begin, if no IDs are given
-- ARGV[3] group   whose dead letters; empty for all
-- ARGV[4] n       how many at most
-- ARGV[5] budget  bytes of records; a single record may be larger
-- ARGV[6...] the IDs of dead letters
-- RETURNS {how many were read, how many IDs were looked at, the last ID that was looked at, 1 if there may
--         be more, and of each dead letter its ID, its header, and its record or false}. Errors: NOTOPIC.
local meta, dlq, data, uid, after, group, n, budget, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local found, bytes = {}, 0
local done, ids, last, more = each_letter(dlq, after, group, n, args, 6, function(id, fields)
  bytes = bytes + redis.call('HSTRLEN', data, id)
  if #found > 0 and bytes > budget then
    return nil
  end
  local header = {}
  for name, value in pairs(fields) do
    header[#header + 1], header[#header + 2] = name, value
  end
  found[#found + 1] = {id, header, redis.call('HGET', data, id)}
  return 1
end)
local answer = {done, ids, last, more}
for i = 1, #found do
  answer[4 + i] = found[i]
end
return answer
