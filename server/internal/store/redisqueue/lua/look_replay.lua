-- Gives dead letters back to their groups, in the same partition: each in one step.
--
-- KEYS[1] meta    HASH of the partition
-- KEYS[2] dlq     STREAM of dead letters
-- KEYS[3] moving  HASH dead letter -> partition that it is being replayed to
-- KEYS[4...]      for each group: retry STREAM; stats HASH
-- ARGV[1] uid     of the topic
-- ARGV[2] start   "-", or "(" and an id: where to begin if no ids are given
-- ARGV[3] n       how many to look at then
-- ARGV[4] group   whose dead letters; all if it is ""
-- ARGV[5] groups  how many groups there are
-- ARGV[6...]      the groups; then ids
-- RETURNS {how many went back, the last id looked at, 1 if there may be more, and the id of each that is on its
-- way to another partition and was left}; NOTOPIC if the topic is not there.
--
-- Safe to repeat with ids: what went back is not there any more. A dead letter whose group is gone, or that is broken, stays.
local meta, dlq, moving, keys, uid, start, n, group, groups, args = KEYS[1], KEYS[2], KEYS[3], KEYS, ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
local place = {}
for g = 1, groups do
  place[args[5 + g]] = 4 + (g - 1) * 2
end

local answer = {0, '', 0}
answer[2], answer[3] = each_letter(dlq, start, tonumber(n), group, args, 6 + groups, function(id, fields)
  local to = redis.call('HGET', moving, id)
  if to then
    answer[#answer + 1] = id
    return
  end
  local k = not fields.broken and fields.i and place[fields.g]
  -- The stream of retries is there exactly as long as the group.
  if not k or not append_item(keys[k], item_of('0', fields.i, fields)) then
    return
  end
  redis.call('XDEL', dlq, id)
  redis.call('HINCRBY', keys[k + 1], 'replayed', 1)
  answer[1] = answer[1] + 1
end)
return answer
