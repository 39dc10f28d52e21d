-- Removes dead letters.
--
-- KEYS[1] meta    HASH of the partition
-- KEYS[2] dlq     STREAM of dead letters
-- KEYS[3] moving  HASH dead letter -> partition that it is being replayed to
-- ARGV[1] uid    of the topic
-- ARGV[2] start  "-", or "(" and an id: where to begin if no ids are given
-- ARGV[3] n      how many to look at then
-- ARGV[4] group  whose dead letters; all if it is ""
-- ARGV[5] all    1 if those are removed too that are on their way to another partition
-- ARGV[6...]     ids
-- RETURNS {how many were removed, the last id looked at, 1 if there may be more, and the id of each that is on its way to
-- another partition and was left}; NOTOPIC if the topic is not there.
--
-- Safe to repeat.
local meta, dlq, moving, uid, start, n, group, all, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
local answer = {0, '', 0}
answer[2], answer[3] = each_letter(dlq, start, tonumber(n), group, args, 6, function(id)
  if not all and redis.call('HEXISTS', moving, id) == 1 then
    answer[#answer + 1] = id
    return
  end
  answer[1] = answer[1] + redis.call('XDEL', dlq, id)
  redis.call('HDEL', moving, id)
end)
return answer
