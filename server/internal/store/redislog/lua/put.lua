-- Appends messages to the log of a partition, and schedules others. Not allowed if Redis is out of
-- memory.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta          HASH
-- KEYS[3] S:sizes         HASH
-- KEYS[4] S:delayed       ZSET message id -> due ms
-- KEYS[5] S:delayed:data  HASH message id -> record
-- KEYS[6] S:moved         ZSET message id -> µs in the log
-- KEYS[7...] S:prod:<uid>:<id> (HASH) if there is a sequence; S:g:<group> (HASH) of as many groups as
--         `states` says; S:g:<group>:rows (HASH) of as many as `rows` says; then of each message its
--         S:idem (STRING) if it has a digest, and its S:uniq (STRING) if it has a unique key
-- ARGV[1] uid
-- ARGV[2] partition
-- ARGV[3] max      the most unsettled messages; 0 for no bound
-- ARGV[4] drop     1 to remove the oldest messages for new ones
-- ARGV[5] window   ms
-- ARGV[6] channel  of wake-ups
-- ARGV[7] wakes    what is published there
-- ARGV[8] furthest ms  how far ahead a message can be due
-- ARGV[9] sequence of the producer, empty for none
-- ARGV[10] digest  of the request
-- ARGV[11] states  how many groups the bound is computed from; 0 counts what the log holds
-- ARGV[12] rows    how many groups' rows a message that replaces another must look at
-- ARGV[13] plain   1 if no message is scheduled or has a key
-- ARGV[14...] of each message: 'd<ms>' (a delay), 'a<ms>' (a time) or empty; the digest if it has an
--         idempotency key; 'r<ms>' (reject), 'k<ms>' (keep) or 'p<ms>' (replace) and how long after
--         its due time its unique key is kept, or empty; and the record. If plain, only the record.
-- RETURNS the µs of the first message; a code for all messages, and how many of them were stored
--         first, if plain; else for each {code, µs, due ms or 0, µs in the log of the message that it
--         replaces or 0, also for a duplicate}. A message i that is stored has the first µs + i - 1.
--         Codes: 0 stored, 1 duplicate, 2 full, 3 key reused, 4 sequence too old, 5 unique key in use,
--         6 too far ahead. Errors: NOTOPIC, PAUSED.
--
-- Safe to repeat: messages with a digest, and requests with a sequence. Others are stored again.
local main, meta, sizes, delayed, data, moved, keys, uid, partition, max, drop, window, channel, wakes, furthest, sequence, digest, states, rows, plain, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13] == '1', ARGV

local STORED, DUPLICATE, FULL, REUSED, OLD, UNIQUE, TOOFAR = 0, 1, 2, 3, 4, 5, 6
local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'paused')
local last, ord = tonumber(head[2]), tonumber(head[3])
if head[1] ~= uid or not last or not ord then
  return redis.error_reply('NOTOPIC')
end
if head[4] then
  return redis.error_reply('PAUSED')
end
local now = now_us()
local base, now_ms, width = math.max(last + 1, now), math.ceil(now / 1000), plain and 1 or 4
local first, next_key = 14, 7
local n = (#args - first + 1) / width

-- The producer's slot: what became of the request if this is a repeat.
local producer, slot, again, skipped, verdict
if sequence then
  producer, next_key, slot = keys[7], 8, string.format('%d', sequence % 64)
  local seq, its_digest, its_first, its_skipped = string.match(redis.call('HGET', producer, slot) or '', '^(%d+) (%S+) %d+ (%d+) ?(%S*)$')
  if seq and tonumber(seq) > sequence then
    verdict = OLD
  elseif seq and tonumber(seq) == sequence then
    again, skipped = tonumber(its_first), ',' .. its_skipped .. ','
    verdict = its_digest == digest and DUPLICATE or REUSED
  end
end
if plain and verdict then
  return {string.format('%d', again or 0), verdict, n}
end

-- The room that is left, and whether the oldest messages go for new ones.
local free = n
local scheduled = max > 0 and redis.call('ZCARD', delayed) or 0
if max > 0 then
  local used = states > 0 and unsettled(keys, next_key, states, ord) or redis.call('XLEN', main)
  free = drop and scheduled < max and n or math.max(max - scheduled - used, 0)
end
next_key = next_key + states

-- remember stores what became of the request, for repeats. A slot lives as long as its hash.
local function remember(not_stored, latest)
  redis.call('HSET', producer, slot, string.format('%d %s %d %d %s', sequence, digest, n, base, not_stored))
  local ttl = window + math.max(latest - now_ms, 0)
  -- Never shorter than it is. A new hash has no expiry, which GT takes for the longest.
  if redis.call('PEXPIRE', producer, string.format('%d', ttl), 'GT') == 0 and redis.call('PTTL', producer) < 0 then
    redis.call('PEXPIRE', producer, string.format('%d', ttl))
  end
end

if plain then
  local stored = math.min(n, free)
  if sequence and stored < n then
    return {'0', FULL, 0}
  end
  -- As append, in place: this is the most frequent path.
  local call, format = redis.pcall, string.format
  for i = 0, stored - 1 do
    local record = args[first + i]
    ord = ord + 1
    local added = call('XADD', main, format('%d-%d', base + i, ord), 'd', record)
    if added.err then
      return i > 0 and error(added.err) or redis.error_reply('NOTOPIC')
    end
    if #record > 4096 then
      note_size(sizes, ord, #record)
    end
  end
  if stored > 0 then
    redis.call('HSET', meta, 'last', string.format('%d', base + stored - 1), 'ord', string.format('%d', ord))
    if sequence then
      remember('', 0)
    end
    if max > 0 and drop then
      drop_oldest(main, delayed, max, stored)
    end
  end
  return {string.format('%d', base), STORED, stored}
end

-- append writes a message at the end of the log.
local dirty = false
local function append(us, record)
  ord = ord + 1
  local added = redis.pcall('XADD', main, string.format('%d-%d', us, ord), 'd', record)
  if added.err then
    -- A stream that is ahead of its meta: the partition must be made anew.
    return dirty and error(added.err) or false
  end
  dirty = true
  note_size(sizes, ord, #record)
  return true
end

local rows_at = next_key
next_key = next_key + rows
local old, later = first_due(delayed), 0

-- known returns the stored message of an idempotency key as a result, or nil.
local function known(key, its_digest)
  local stored = redis.call('GET', key)
  if not stored then
    return nil
  end
  local first_digest, us, due = string.match(stored, '^(%S+) (%d+) (%d+)$')
  if first_digest ~= its_digest then
    return {REUSED, '0', '0', '0'}
  end
  if due ~= '0' then
    -- It may have been rescheduled.
    due = redis.call('ZSCORE', delayed, scheduled_id(partition, us)) or due
  end
  return {DUPLICATE, us, due, '0'}
end

-- holder_of returns the message that has a unique key: its µs, its due time if it is scheduled, and its
-- µs in the log if it is there. nil if the key is free, or what had it is gone without freeing it. The
-- payloads that this reads are bounded; above that a key counts as used.
local looked = 0
local function holder_of(key)
  local us = string.match(redis.call('GET', key) or '', '^(%d+) ')
  if not us then
    return nil
  end
  local id = scheduled_id(partition, us)
  local due = redis.call('ZSCORE', delayed, id)
  if due then
    return us, due, nil
  end
  due = redis.call('ZSCORE', moved, id)
  local at = due or us
  if looked < 1048576 then
    local entry = redis.call('XRANGE', main, at, at, 'COUNT', 1)[1]
    if not entry then
      return nil
    end
    looked = looked + #(entry[2][2] or '')
  end
  return us, due and text(math.floor(tonumber(due) / 1000)) or '0', at
end

-- begun reports whether a handler of some group is known to work on an entry.
local function begun(at)
  for i = rows_at, rows_at + rows - 1 do
    if string.find(redis.call('HGET', keys[i], at) or '', '^begun ') then
      return true
    end
  end
  return false
end

-- claim judges a unique key. It returns what to answer instead of storing the message, or nil, and the
-- message in the log that it replaces.
local function claim(key, unique)
  local us, due, at = holder_of(key)
  if not us then
    return nil, '0'
  end
  local mode = string.sub(unique, 1, 1)
  if mode == 'k' then
    return {DUPLICATE, us, due, '0'}
  end
  if mode == 'r' or at and begun(at) then
    return {UNIQUE, '0', '0', '0'}
  end
  if at then
    return nil, at
  end
  redis.call('ZREM', delayed, scheduled_id(partition, us))
  redis.call('HDEL', data, scheduled_id(partition, us))
  redis.call('HINCRBY', meta, 'cancelled', 1)
  dirty, free, scheduled = true, free + 1, scheduled - 1
  return nil, '0'
end

-- A request with a sequence is stored whole or not at all: so much room it may need.
local refused = false
if sequence and not verdict and free < n then
  local need, key = 0, next_key
  for at = first, #args, 4 do
    local has_digest = args[at + 1] ~= ''
    need = need + ((has_digest and redis.call('EXISTS', keys[key]) == 1) and 0 or 1)
    key = key + (has_digest and 1 or 0) + (args[at + 2] ~= '' and 1 or 0)
  end
  refused = need > free
end

local groups
local function group_count()
  if not groups then
    groups = 0
    for _ in string.gmatch(redis.call('HGET', meta, 'groups') or '', '%S+') do
      groups = groups + 1
    end
    groups = math.max(groups, 1)
  end
  return groups
end

local results, stored, not_stored, latest, covered = {base}, 0, {}, 0, false
local function put(i, when, its_digest, unique, record, idem, uniq)
  local us, due = base + i, 0
  if idem then
    local result = known(idem, its_digest)
    if result then
      return result
    end
  elseif verdict == OLD or verdict == REUSED then
    return {verdict, '0', '0', '0'}
  elseif verdict and not string.find(skipped, ',' .. i .. ',', 1, true) then
    local first_us = text(again + i)
    due = when == '' and '0' or redis.call('ZSCORE', delayed, scheduled_id(partition, first_us)) or text(due_at(when, math.ceil(again / 1000)))
    return {DUPLICATE, first_us, due, '0'}
  end
  if when ~= '' then
    due = due_at(when, now_ms)
    if due > now_ms + furthest then
      return {TOOFAR, '0', '0', '0'}
    end
  end
  if refused then
    return {FULL, '0', '0', '0'}
  end
  local replaced = '0'
  if uniq then
    local result
    result, replaced = claim(uniq, unique)
    if result then
      return result
    end
  end
  -- Scheduled messages are not removed for others, so the log can make no more room than it has.
  if stored >= free or due > 0 and drop and max > 0 and scheduled >= max then
    return {FULL, '0', '0', '0'}
  end
  if due > 0 then
    local id = scheduled_id(partition, text(us))
    redis.call('HSET', data, id, record)
    redis.call('ZADD', delayed, text(due), id)
    dirty, scheduled, later, latest = true, scheduled + 1, later + 1, math.max(latest, due)
  elseif not append(us, record) then
    return nil
  end
  stored = stored + 1
  if idem then
    redis.call('SET', idem, its_digest .. ' ' .. text(us) .. ' ' .. text(due), 'PX', text(window + math.max(due - now_ms, 0)))
  end
  if uniq then
    redis.call('SET', uniq, text(us) .. ' ' .. group_count() .. (replaced ~= '0' and ' ' .. replaced or ''), 'PX', text(tonumber(string.sub(unique, 2)) + math.max(due - now_ms, 0)))
  end
  return {STORED, text(us), text(due), replaced}
end

for i = 0, n - 1 do
  local at = first + 4 * i
  local idem, uniq
  if args[at + 1] ~= '' then
    idem, next_key = keys[next_key], next_key + 1
  end
  if args[at + 2] ~= '' then
    uniq, next_key = keys[next_key], next_key + 1
  end
  local result = put(i, args[at], args[at + 1], args[at + 2], args[at + 3], idem, uniq)
  if not result then
    return redis.error_reply('NOTOPIC')
  end
  if result[1] == DUPLICATE and string.sub(args[at + 2], 1, 1) == 'p' then
    -- Who stored it may have died before it had the message that this one replaced cancelled.
    local us, replaced = string.match(redis.call('GET', uniq) or '', '^(%d+) %d+ (%d+)$')
    result[4] = us == result[2] and replaced or '0'
  end
  if not idem then
    covered = covered or result[1] == STORED
    if result[1] ~= STORED then
      not_stored[#not_stored + 1] = i
    end
  end
  results[i + 1] = result
end
if stored > 0 then
  redis.call('HSET', meta, 'last', text(base + n - 1), 'ord', text(ord))
  if covered and sequence and not verdict then
    remember(table.concat(not_stored, ','), latest)
  end
  if max > 0 and drop then
    drop_oldest(main, delayed, max, stored)
  end
end
if later > 0 then
  wake(delayed, old, now_ms, channel, wakes)
end
return results
