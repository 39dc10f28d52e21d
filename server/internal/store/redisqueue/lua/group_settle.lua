-- Ends deliveries of a lease, all in one step.
--
-- KEYS[1] lease          STRING "<holder> <epoch>"
-- KEYS[2] main           STREAM
-- KEYS[3] retry          STREAM of the group
-- KEYS[4] retrying       ZSET message -> due ms
-- KEYS[5] retrying data  HASH message -> item
-- KEYS[6] dlq            STREAM of dead letters
-- KEYS[7] stats          HASH counters of the group
-- KEYS[8] keys           HASH key -> "<its unsettled message> <entry>"
-- KEYS[9] parked         ZSET of messages that wait for their key
-- KEYS[10] parked data   HASH the same -> item
-- ARGV[1] fence      what the lease must be
-- ARGV[2] group
-- ARGV[3] consumer   the epoch's
-- ARGV[4] partition
-- ARGV[5] channel    on which earlier due times are told
-- ARGV[6] wakeup     what to tell there
-- ARGV[7] mains      how many entries of main are acked without freeing a key
-- ARGV[8] retries    the same of retry
-- ARGV[9...]         their ids; then, for each other settlement: ack, retry, dead or release; main or retry; the entry's id; the
--                    message's id; its key if order is strict, or ""; of retry the delay in ms, of dead how many deliveries
--                    do not count; the reason; the code
-- RETURNS 0; FENCED if the lease is another's.
--
-- Safe to repeat: what is not pending any more stays as it is.
local lease, main, retry, retrying, retrying_data, dlq, stats, keys, parked, parked_data, fence, group, consumer, partition, channel, wakeup, mains, retries, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV

if redis.call('GET', lease) ~= fence then
  return redis.error_reply('FENCED the lease was lost')
end

local now, was = now_us() / 1000, first_due(retrying)
local done = {acked = 0, retried = 0, dead = 0, trimmed = 0}

-- In pieces, because unpack takes less than 8000.
for at = 9, 8 + mains, 1000 do
  done.acked = done.acked + redis.call('XACK', main, group, unpack(args, at, math.min(at + 999, 8 + mains)))
end
for at = 9 + mains, 8 + mains + retries do
  done.acked = done.acked + ack(retry, group, true, args[at])
end

-- mine gives how often the entry was delivered, and whether it is released; nil if it is not pending. Under our lease it is ours, and
-- only we release: what is released and settled all the same was released by a call of ours that came late, after its repeat and the
-- delivery that followed. Where an earlier owner has it, Redis has lost our claim in a restart.
local function mine(stream, id)
  local p = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not p then
    return nil
  end
  if p[2] == consumer then
    return p[4], false
  end
  return p[4] + 1, p[2] == 'released'
end

-- attempts_of counts the deliveries of a message: those of its earlier entries, which the entry tells, and the entry's own.
local function attempts_of(fields, deliveries)
  return text(tonumber(fields.a or '0') + deliveries)
end

-- drop forgets an entry that was trimmed away while it was pending.
local function drop(stream, id, key, message)
  redis.call('XACK', stream, group, id)
  done.trimmed = done.trimmed + 1
  free_key(keys, parked, parked_data, retry, key, message)
end

local verdicts = {}

function verdicts.ack(stream, own, id, message, key)
  if ack(stream, group, own, id) == 1 then
    done.acked = done.acked + 1
    free_key(keys, parked, parked_data, retry, key, message)
  end
end

function verdicts.retry(stream, own, id, message, key, delay, reason, code)
  local deliveries = mine(stream, id)
  if not deliveries then
    return
  end
  local fields = entry_at(stream, id)
  if not fields then
    return drop(stream, id, key, message)
  end
  if fields.broken then
    return verdicts.dead(stream, own, id, message, key, 0, reason, code)
  end
  message = message_of(partition, id, fields)
  local member = message
  if redis.call('ZSCORE', retrying, member) then
    -- The group has the message twice, as after a seek and a replay.
    member = message .. '/' .. (own and 'r' or 'm') .. id
  end
  redis.call('HSET', retrying_data, member, item_of(attempts_of(fields, deliveries), message, fields))
  redis.call('ZADD', retrying, text(math.ceil(now) + delay), member)
  ack(stream, group, own, id)
  done.retried = done.retried + 1
end

function verdicts.dead(stream, own, id, message, key, unsent, reason, code)
  local deliveries = mine(stream, id)
  if not deliveries then
    return
  end
  local fields = entry_at(stream, id)
  if not fields then
    return drop(stream, id, key, message)
  end
  message = message_of(partition, id, fields)
  local letter = {
    'XADD', dlq, '*', 'i', message, 'a', attempts_of(fields, deliveries - unsent), 'g', group, 'r', reason, 'c', code,
  }
  for _, name in ipairs({'d', 'k', 't', 'x'}) do
    if fields[name] then
      letter[#letter + 1] = name
      letter[#letter + 1] = fields[name]
    end
  end
  redis.call(unpack(letter))
  ack(stream, group, own, id)
  done.dead = done.dead + 1
  free_key(keys, parked, parked_data, retry, fields.k or '', message)
end

-- A release takes back the delivery, so that the claim that follows counts the same one.
function verdicts.release(stream, _, id, message, key)
  local deliveries, already = mine(stream, id)
  if not deliveries or already then
    return
  end
  if #redis.call('XCLAIM', stream, group, 'released', 0, id, 'RETRYCOUNT', deliveries - 1, 'JUSTID') == 0 then
    drop(stream, id, key, message)
  end
end

for at = 9 + mains + retries, #args, 8 do
  local own = args[at + 1] == 'retry'
  verdicts[args[at]](own and retry or main, own, args[at + 2], args[at + 3], args[at + 4], tonumber(args[at + 5]), args[at + 6], args[at + 7])
end

if done.retried > 0 then
  wake(retrying, was, now, channel, wakeup)
end
for name, n in pairs(done) do
  if n > 0 then
    redis.call('HINCRBY', stats, name, n)
  end
end
return 0
