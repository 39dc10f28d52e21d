-- Removes the oldest dead letters: those that are too old, or too many.
--
-- KEYS[1] S:meta      HASH
-- KEYS[2] S:dlq       STREAM
-- KEYS[3] S:dlq:data  HASH
-- ARGV[1] uid
-- ARGV[2] age ms  how long they stay; 0 for any time
-- ARGV[3] count   how many stay; 0 for any number
-- ARGV[4] n       how many are removed at most
-- RETURNS how many were removed. Errors: NOTOPIC.
--
-- Safe to repeat.
local meta, dlq, data, uid, age, count, n, none = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), {}

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local oldest = age > 0 and math.floor(now_us() / 1000) - age or 0
local over = count > 0 and redis.call('XLEN', dlq) - count or 0
return (each_letter(dlq, '0-0', '', n, none, 1, function(id, fields)
  if over <= 0 and tonumber(string.match(id, '^%d+')) >= oldest then
    return nil
  end
  over = over - 1
  remove_letter(dlq, data, id, fields)
  return 1
end))
