-- Begins to replay dead letters to another partition: step 1 of 3, in the partition that has them. From now on only that
-- partition may get them, so that each goes back once.
--
-- KEYS[1] meta    HASH of the partition
-- KEYS[2] dlq     STREAM of dead letters
-- KEYS[3] moving  HASH dead letter -> partition that it is being replayed to
-- ARGV[1] uid    of the topic
-- ARGV[2] start  "-", or "(" and an id: where to begin if no ids are given
-- ARGV[3] n      how many to look at then
-- ARGV[4] group  whose dead letters; all if it is ""
-- ARGV[5] to     the partition, for those that are not on their way to another; "" leaves them
-- ARGV[6...]     the groups that there are, "", then ids
-- RETURNS {the last id looked at, 1 if there may be more, and {id, partition, group, message id, key, t, d} of each that is on its
-- way}; NOTOPIC if the
-- topic is not there.
--
-- Safe to repeat: who is on the way to a partition stays so. A dead letter that is broken stays.
local meta, dlq, moving, uid, start, n, group, to, args = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
local known, at = {}, 6
while args[at] ~= '' do
  known[args[at]] = true
  at = at + 1
end

local answer = {'', 0}
answer[1], answer[2] = each_letter(dlq, start, tonumber(n), group, args, at + 1, function(id, fields)
  local target = redis.call('HGET', moving, id)
  if fields.broken or not fields.i then
    return
  end
  if not target and to ~= '' and known[fields.g] then
    redis.call('HSET', moving, id, to)
    target = to
  end
  if target then
    answer[#answer + 1] = {id, target, fields.g, fields.i, fields.k or '', fields.t or '0', fields.d}
  end
end)
return answer
