-- Lists the rows of a group that are retrying or suspect, by their due times.
--
-- KEYS[1] S:g:<group>       HASH
-- KEYS[2] S:g:<group>:due   ZSET µs -> due ms
-- KEYS[3] S:g:<group>:rows  HASH µs -> row
-- ARGV[1] uid
-- ARGV[2] due ms  of the row after which to begin; -1 for the beginning
-- ARGV[3] id      its µs
-- ARGV[4] n       how many at most
-- ARGV[5] budget  bytes of rows
-- RETURNS {1 if there may be more, and of each its µs, its due time and the row}. Errors: NOGROUP.
local state, set, rows, uid, due, id, n, budget = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if redis.call('HGET', state, 'uid') ~= uid then
  return redis.error_reply('NOGROUP')
end
return list_after(set, rows, due, id, n, budget)
