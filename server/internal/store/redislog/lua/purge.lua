-- Removes dead letters.
--
-- KEYS[1] S:meta      HASH
-- KEYS[2] S:dlq       STREAM
-- KEYS[3] S:dlq:data  HASH
-- ARGV[1] uid
-- ARGV[2] after  the ID after which to begin, if no IDs are given
-- ARGV[3] group  whose dead letters; empty for all
-- ARGV[4] n      how many at most
-- ARGV[5...] the IDs of dead letters
-- RETURNS {how many were removed, how many IDs were looked at, the last ID that was looked at, 1 if there
--         may be more}. Errors: NOTOPIC.
--
-- Safe to repeat.
local meta, dlq, data, uid, after, group, n, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
return {each_letter(dlq, after, group, n, args, 5, function(id, fields)
  remove_letter(dlq, data, id, fields)
  return 1
end)}
