-- Appends messages to a partition, in order. In a partition that is full it removes what is settled, then, if it may, the
-- oldest; else what does not fit is refused, and all new ones behind it.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed  ZSET
-- KEYS[4...] for each group its :retry (STREAM), :keys (HASH), :parked (ZSET), :parked:data (HASH) and :stats
--         (HASH); then for each message with a digest its idempotency key (STRING)
-- ARGV[1] uid
-- ARGV[2] partition
-- ARGV[3] window ms  how long idempotency keys are remembered
-- ARGV[4] max        the most messages that the partition holds; 0 is without limit
-- ARGV[5] drop       1 to remove the oldest for new ones
-- ARGV[6] age ms     how long settled messages stay
-- ARGV[7] messages   the most of them; 0 is without limit
-- ARGV[8] orphans    1 if a group that is not named may be there, and is of no account
-- ARGV[9] groups     how many
-- ARGV[10] plain     1 if no message has a digest or a key
-- ARGV[11...] their names; then for each message, unless it is plain: digest, or empty without an idempotency key; key, or empty
--            without strict order; and of each the record
-- RETURNS for each message the id of its entry if it is new, which costs less than a list, or {message id, 1} if it is a duplicate, or
--         {FULL} or {KEYREUSED}.
--         Errors: NOTOPIC, PAUSED; GROUPS if the oldest had to go and a group is there that is not named.
--
-- Safe to repeat: messages with an idempotency key. Others are appended again.
local main, meta, delayed, keys, uid, partition, window, max, drop, age, messages, orphans, groups, plain, args = KEYS[1], KEYS[2], KEYS[3], KEYS, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9]), ARGV[10] == '1', ARGV

local state = redis.call('HMGET', meta, 'uid', 'produce_paused')
if state[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if state[2] then
  return redis.error_reply('PAUSED')
end
local names, first, width = list(args, 11, groups), 11 + groups, plain and 1 or 3
local free = (#args - first + 1) / width
if max > 0 then
  local bound = {max = max, drop = drop, age = age, messages = messages, names = names}
  local overflow
  free, overflow = room(main, delayed, bound, now_ms(), free, false)
  if overflow and not orphans and foreign(main, names) then
    return redis.error_reply('GROUPS')
  end
end

local results, produced, idempotency = {}, 0, 4 + 5 * groups
for at = first, #args, width do
  local digest, key, record, result = '', '', args[at], nil
  if not plain then
    digest, key, record = args[at], args[at + 1], args[at + 2]
  end
  if digest ~= '' then
    result = known(keys[idempotency], digest)
  end
  if not result and produced >= free then
    result = {'FULL'}
  end
  if not result then
    if key == '' then
      result = redis.call('XADD', main, 'NOMKSTREAM', '*', 'd', record)
    else
      result = redis.call('XADD', main, 'NOMKSTREAM', '*', 'd', record, 'k', key)
    end
    if digest ~= '' then
      redis.call('SET', keys[idempotency], digest .. ' ' .. partition .. '-' .. result .. ' 0', 'PX', window)
    end
    produced = produced + 1
  end
  if digest ~= '' then
    idempotency = idempotency + 1
  end
  results[#results + 1] = result
end
if produced > 0 then
  redis.call('HINCRBY', meta, 'produced', produced)
end
if max > 0 and drop then
  local over = redis.call('XLEN', main) + redis.call('ZCARD', delayed) - max
  drop_oldest(main, partition, names, keys, 4, math.min(over, most_dropped + produced))
end
return results
