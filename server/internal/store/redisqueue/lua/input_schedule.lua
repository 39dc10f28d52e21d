-- Keeps messages for later. A full partition is dealt with as input_produce does.
--
-- KEYS[1] stream:topic:{<topic>:<p>}       STREAM
-- KEYS[2] stream:topic:{<topic>:<p>}:meta  HASH
-- KEYS[3] stream:topic:{<topic>:<p>}:delayed  ZSET message id -> due ms
-- KEYS[4] stream:topic:{<topic>:<p>}:delayed:data  HASH message id -> item
-- KEYS[5...] for each group its :retry (STREAM), :keys (HASH), :parked (ZSET), :parked:data (HASH) and :stats
--         (HASH); then for each message with a digest its idempotency key (STRING)
-- ARGV[1] uid
-- ARGV[2] partition
-- ARGV[3] window ms  how long idempotency keys are remembered
-- ARGV[4] max        the most messages that the partition holds; 0 is without limit
-- ARGV[5] drop       1 to remove the oldest for new ones
-- ARGV[6] age ms     how long settled messages stay
-- ARGV[7] messages   the most of them; 0 is without limit
-- ARGV[8] orphans    1 if a group that is not named may be there, and is of no account
-- ARGV[9] channel   of wake-ups
-- ARGV[10] wakes     what is published there
-- ARGV[11] furthest ms  how far ahead a message may be due
-- ARGV[12] groups    how many
-- ARGV[13...] their names; then for each message: digest, or empty without an idempotency key; delay ms, or empty if there is a
--            time; the time in ms; key, or empty without strict order; record
-- RETURNS for each message {message id, 1 if it is a duplicate, else 0, due ms} or {FULL} or {KEYREUSED} or {TOOFAR}.
--         Errors: NOTOPIC, PAUSED; GROUPS if the oldest had to go and a group is there that is not named.
--
-- Safe to repeat: messages with an idempotency key. Others are kept again.
local main, meta, delayed, data, keys, uid, partition, window, max, drop, age, messages, orphans, channel, wakes, furthest, groups, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1', ARGV[9], ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV

local state = redis.call('HMGET', meta, 'uid', 'produce_paused')
if state[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if state[2] then
  return redis.error_reply('PAUSED')
end
local now = now_up()
local names, first = list(args, 13, groups), 13 + groups
local free = (#args - first + 1) / 5
if max > 0 then
  local bound = {max = max, drop = drop, age = age, messages = messages, names = names}
  local overflow
  free, overflow = room(main, delayed, bound, now, free, true)
  if overflow and not orphans and foreign(main, names) then
    return redis.error_reply('GROUPS')
  end
end

local results, produced, idempotency, old = {}, 0, 5 + 5 * groups, first_due(delayed)
for at = first, #args, 5 do
  local digest, result = args[at], nil
  if digest ~= '' then
    result = known(keys[idempotency], digest)
  end
  if result and result[2] == 1 then
    -- It may have been rescheduled meanwhile.
    result[3] = redis.call('ZSCORE', delayed, result[1]) or result[3]
  end
  local due = due_at(now, args[at + 1], args[at + 2])
  if not result and due > now + furthest then
    result = {'TOOFAR'}
  end
  if not result and produced >= free then
    result = {'FULL'}
  end
  if not result then
    -- Of one width: what is due at the same time is in the order of these texts.
    local id = partition .. '-' .. text(now) .. '-' .. string.format('%010.0f', redis.call('HINCRBY', meta, 'taken', 1)) .. 'd'
    redis.call('HSET', data, id, pack_item('0', id, '0', args[at + 3], args[at + 4]))
    redis.call('ZADD', delayed, text(due), id)
    result = {id, 0, text(due)}
    if digest ~= '' then
      redis.call('SET', keys[idempotency], digest .. ' ' .. id .. ' ' .. text(due), 'PX', window)
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
  if max > 0 and drop then
    local over = redis.call('XLEN', main) + redis.call('ZCARD', delayed) - max
    drop_oldest(main, partition, names, keys, 5, math.min(over, most_dropped + produced))
  end
  wake(delayed, old, now, channel, wakes)
end
return results
