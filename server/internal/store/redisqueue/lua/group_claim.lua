-- Gives what is pending in a group's stream to a lease's holder, in order: what an earlier holder left, what was released,
-- and what the holder was given in an answer that it did not get.
--
-- KEYS[1] lease        STRING "<holder> <epoch>"
-- KEYS[2] stream       STREAM main or retry
-- KEYS[3] stats        HASH counters of the group
-- KEYS[4] keys         HASH key -> "<its unsettled message> <entry>"
-- KEYS[5] parked       ZSET of messages that wait for their key
-- KEYS[6] parked data  HASH the same -> item
-- KEYS[7] retry        STREAM of the group
-- ARGV[1] fence      what the lease must be
-- ARGV[2] group
-- ARGV[3] consumer   the epoch's
-- ARGV[4] start      where to begin: an id, "(" and an id, or "-"
-- ARGV[5] n          the most entries
-- RETURNS {entries looked at, the last one's id or "", the stats' fetched, and {id, fields, deliveries} of each that there still is};
-- FENCED if the lease is another's.
--
-- Safe to repeat: XCLAIM counts a delivery, so it is done only to what is not the consumer's yet. XAUTOCLAIM would count one
-- with every repeat, and a lost answer would cost an attempt.
local lease, stream, stats, keys, parked, parked_data, retry, fence, group, consumer, start, n = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('GET', lease) ~= fence then
  return redis.error_reply('FENCED the lease was lost')
end

local held

-- key_of finds the key that an entry holds.
local function key_of(id)
  if not held then
    held = {}
    local all = redis.call('HGETALL', keys)
    for at = 1, #all, 2 do
      held[string.match(all[at + 1], ' (%S+)$')] = all[at]
    end
  end
  return held[(stream == retry and 'r' or 'm') .. id]
end

-- drop forgets an entry that was trimmed away while it was pending.
local function drop(id)
  local key = key_of(id)
  if key then
    free_key(keys, parked, parked_data, retry, key, (holder_of(keys, key)))
  end
  redis.call('HINCRBY', stats, 'trimmed', 1)
  redis.call('XACK', stream, group, id)
end

local pending = redis.call('XPENDING', stream, group, start, '+', n)
local last, answer = '', {#pending, '', redis.call('HGET', stats, 'fetched') or '0'}
for _, p in ipairs(pending) do
  local id, owner, deliveries = p[1], p[2], p[4]
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if not entry then
    drop(id)
  else
    if owner ~= consumer then
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', deliveries + 1, 'JUSTID')
      deliveries = deliveries + 1
    end
    answer[#answer + 1] = {id, entry[2], deliveries}
  end
  last = id
end
answer[2] = last
return answer
