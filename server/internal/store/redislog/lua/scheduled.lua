-- Lists scheduled messages, by their due times.
--
-- KEYS[1] S:meta          HASH
-- KEYS[2] S:delayed       ZSET message id -> due ms
-- KEYS[3] S:delayed:data  HASH message id -> record
-- ARGV[1] uid
-- ARGV[2] due ms  of the message after which to begin; -1 for the beginning
-- ARGV[3] id      its ID
-- ARGV[4] n       how many at most
-- ARGV[5] budget  bytes of records; a single record may be larger
-- RETURNS {1 if there may be more, and of each its ID, its due time and its record}. Errors: NOTOPIC.
local meta, delayed, data, uid, due, id, n, budget = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
return list_after(delayed, data, due, id, n, budget)
