-- Counts what a partition holds, at one moment.
--
-- KEYS[1] meta     HASH of the partition
-- KEYS[2] main     STREAM
-- KEYS[3] dlq      STREAM of dead letters
-- KEYS[4] delayed  ZSET scheduled message -> due ms
-- KEYS[5...]       for each group: lease STRING; retry STREAM; retrying ZSET message -> due ms; parked ZSET; stats HASH
-- ARGV[1] uid        of the topic
-- ARGV[2] partition
-- ARGV[3...]         the groups
-- RETURNS {length, delayed, produced, cancelled, dead letters, first message's id, last one's}, and for each group {1 if it
-- is there, unread, pending, retrying, parked, acked, dead, retried, replayed, trimmed, skipped, age of the oldest message that
-- is not settled in ms or 0, 1 if it is held}; NOTOPIC if the topic is not there.
--
-- Safe to repeat.
local meta, main, dlq, delayed, keys, uid, partition, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS, ARGV[1], ARGV[2], ARGV

local topic = redis.call('HMGET', meta, 'uid', 'produced', 'cancelled')
if topic[1] ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end

local function info_of(stream)
  local found = {}
  if redis.call('EXISTS', stream) == 1 then
    for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
      local info = named(g)
      found[info.name] = info
    end
  end
  return found
end

local now, length = now_ms(), redis.call('XLEN', main)
local first, last = redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1], redis.call('XREVRANGE', main, '+', '-', 'COUNT', 1)[1]

local added = named(redis.call('XINFO', 'STREAM', main))['entries-added']

-- unread counts the entries that a group has not read: of all that there ever were those that it has not passed. At the ends it is known
-- without counting; so what others than Parley have trimmed, or what came before the time at which a group is to begin, is noticed,
-- and counted as skipped.
local function unread(at, stats, read)
  local n = added - read
  local known = n
  if not first or not before(at, last[1]) then
    known = 0
  elseif before(at, first[1]) then
    known = length
  end
  if known ~= n then
    redis.call('HSET', stats, 'read', added - known)
    redis.call('HINCRBY', stats, 'skipped', n - known)
  end
  return known
end

-- time_of tells when a message was taken, or due, by its entry.
local function time_of(id, fields)
  if fields.t then
    return tonumber(fields.t)
  end
  return tonumber(string.match(fields.i or '', '^%d+%-(%d+)%-') or string.match(id, '^%d+'))
end

-- age_of gives the age of the oldest of the messages that a group has not settled, by the first one of each kind: of the
-- partition's stream, of the retries that are due, and of those that are not. A parked one has an older one before it.
local function age_of(info, pending, retry, retrying)
  local oldest = now
  local at = pending[1] > 0 and pending[2] or '(' .. info['last-delivered-id']
  local entry = redis.call('XRANGE', main, at, '+', 'COUNT', 1)[1]
  if entry then
    oldest = time_of(entry[1], fields_of(entry[2]))
  end
  entry = redis.call('XRANGE', retry, '-', '+', 'COUNT', 1)[1]
  if entry then
    oldest = math.min(oldest, time_of(entry[1], fields_of(entry[2])))
  end
  local message = redis.call('ZRANGE', retrying, 0, 0)[1]
  local taken = message and string.match(message, '^%d+%-(%d+)%-')
  if taken then
    oldest = math.min(oldest, tonumber(taken))
  end
  return math.max(now - oldest, 0)
end

local of_main = info_of(main)

local function count(group, lease, retry, retrying, parked, stats)
  local info, of_retry = of_main[group], info_of(retry)[group]
  if not info or not of_retry then
    return {0}
  end
  local pending = redis.call('XPENDING', main, group)
  local left = unread(info['last-delivered-id'], stats, tonumber(redis.call('HGET', stats, 'read') or 0))
  local c = redis.call('HMGET', stats, 'acked', 'dead', 'retried', 'replayed', 'trimmed', 'skipped')
  local waiting = redis.call('ZCARD', retrying) + redis.call('XLEN', retry) - of_retry.pending
  return {
    1, left, pending[1] + of_retry.pending, waiting, redis.call('ZCARD', parked),
    c[1] or '0', c[2] or '0', c[3] or '0', c[4] or '0', c[5] or '0', c[6] or '0',
    age_of(info, pending, retry, retrying), redis.call('EXISTS', lease),
  }
end

local function id_of(entry)
  return entry and message_of(partition, entry[1], fields_of(entry[2])) or ''
end

local answer = {
  length, redis.call('ZCARD', delayed), topic[2] or '0', topic[3] or '0', redis.call('XLEN', dlq), id_of(first), id_of(last),
}
for g = 3, #groups do
  local k = 5 + (g - 3) * 5
  answer[#answer + 1] = count(groups[g], keys[k], keys[k + 1], keys[k + 2], keys[k + 3], keys[k + 4])
end
return answer
