-- Tells the time of the server that has a partition.
--
-- KEYS[1] meta  HASH of the partition
-- ARGV[1] uid   of the topic
-- RETURNS ms since 1970; NOTOPIC if the topic is not there.
local meta, uid = KEYS[1], ARGV[1]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
return now_ms()
