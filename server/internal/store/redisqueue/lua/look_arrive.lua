-- Takes a dead letter of another partition: step 2 of 3, in the partition that it is replayed to.
--
-- KEYS[1] meta     HASH of the partition
-- KEYS[2] arrived  STRING marker of the dead letter
-- KEYS[3] retry    STREAM of the group
-- ARGV[1] uid      of the topic
-- ARGV[2] began    this server's time in ms before step 1 read the dead letter
-- ARGV[3] life     ms that may have passed since; less than what a marker lives after step 3
-- ARGV[4] keep     ms that the marker lives
-- ARGV[5] message  its id for good
-- ARGV[6] key      "" for none
-- ARGV[7] due      its t, "0" for none
-- ARGV[8] data     its d
-- RETURNS 0 if it has arrived, now or before; NOTOPIC if the topic is not there, NOGROUP if the group
-- is not, 1 if it took too long and nothing was done.
--
-- Safe to repeat: the marker tells.
local meta, arrived, retry, uid, began, life, keep, message, key, due, data = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
if redis.call('EXISTS', arrived) == 1 then
  return 0
end
-- Whoever stood still after step 1 may come when another has finished, and the marker is gone.
local age = now_ms() - began
if age < 0 or age > life then
  return 1
end
-- The stream of retries is there exactly as long as the group.
if not append_item(retry, pack_item('0', message, due, key, data)) then
  return redis.error_reply('NOGROUP no such consumer group')
end
redis.call('SET', arrived, '1', 'PX', keep)
return 0
