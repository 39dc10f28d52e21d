-- Applies one durable step of a lease holder, whole or not at all, and once.
--
-- KEYS[1] S:g:<group>       HASH
-- KEYS[2] S:g:<group>:open  HASH
-- KEYS[3] S:g:<group>:rows  HASH
-- KEYS[4] S:g:<group>:due   ZSET
-- KEYS[5] S:meta            HASH
-- KEYS[6] S:sizes           HASH
-- KEYS[7] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[8] S:dlq             STREAM
-- KEYS[9] S:dlq:data        HASH
-- KEYS[10] S:moved          ZSET
-- KEYS[11...] S:uniq:<key> (STRING) of each unique key
-- ARGV[1] uid
-- ARGV[2] partition
-- ARGV[3] group
-- ARGV[4] epoch    of the holder
-- ARGV[5] acked    the last version that the store acknowledged to it
-- ARGV[6] version  of this commit
-- ARGV[7] cursor   "<µs>-<ord>"
-- ARGV[8] sent     "<µs>-<ord>"
-- ARGV[9] release  1 to give the lease back, 2 if also deliveries without a row may exist
-- ARGV[10] gv      the version of the set of groups under which entries may be removed
-- ARGV[11] counters  how many there are; so the next six
-- ARGV[12] chunks
-- ARGV[13] rows
-- ARGV[14] row deletions
-- ARGV[15] dead letters
-- ARGV[16] unique keys
-- ARGV[17] removals
-- ARGV[18...] counters: name, addend; chunks: field, ranges; rows: µs, row, due ms or empty; row
--         deletions: µs; dead letters: ID in the stream, message ID, attempts, reason, code, key,
--         bytes of the payload; unique
--         keys: µs of the message; removals: ID in the stream
-- RETURNS {last µs, last ord, gv, sizes of the largest record in each of the four runs of 256 ordinals
--         from the one after sent on, 0 for up to 4 KiB}. Errors: NOTOPIC, NOGROUP, FENCED, ROLLEDBACK,
--         TOOLARGE.
--
-- Safe to repeat byte for byte: what has the version, or an earlier one, was applied before.
local state, open, rows, due, meta, sizes, main, dlq, dlq_data, moved, keys, uid, partition, group, epoch, acked, version, cursor, sent, release, gv, n_counters, n_chunks, n_rows, n_row_deletions, n_dead, n_unique, n_removals, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17]), ARGV

local head = redis.call('HMGET', meta, 'uid', 'last', 'ord', 'gv')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
local stored = redis.call('HMGET', state, 'uid', 'epoch', 'ver')
if stored[1] ~= uid then
  return redis.error_reply('NOGROUP')
end
local stored_epoch, stored_version = tonumber(stored[2] or '0'), tonumber(stored[3] or '0')
if stored_epoch > epoch then
  return redis.error_reply('FENCED')
end
if stored_epoch < epoch then
  return redis.error_reply('ROLLEDBACK')
end

local function answer()
  return {head[2] or '0', head[3] or '0', head[4] or '0', unpack(largest_after(sizes, sent))}
end
if stored_version >= version then
  return answer()
end
if stored_version < acked then
  return redis.error_reply('ROLLEDBACK')
end

-- take returns the next n arguments.
local at = 18
local function take(n)
  at = at + n
  return unpack(args, at - n, at - 1)
end

-- The records of dead letters are read before anything is written: too many bytes refuse the commit.
local records, bytes = {}, 0
local dead_at = at + 2 * n_counters + 2 * n_chunks + 3 * n_rows + n_row_deletions
for i = 0, n_dead - 1 do
  local id = args[dead_at + 7 * i]
  local entry = redis.call('XRANGE', main, id, id)[1]
  records[i + 1] = entry and named(entry[2]) or false
  bytes = bytes + (entry and #(records[i + 1].d or '') or 0)
  if bytes > 1048576 and n_dead > 1 then
    return redis.error_reply('TOOLARGE')
  end
end

for _ = 1, n_counters do
  local name, addend = take(2)
  redis.call('HINCRBY', state, name, addend)
end

-- count_ordinals returns how many ordinals ranges contain.
local function count_ordinals(ranges)
  local n = 0
  for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    n = n + (last == '' and 1 or tonumber(last) - tonumber(first) + 1)
  end
  return n
end
local opened = 0
for _ = 1, n_chunks do
  local field, ranges = take(2)
  opened = opened + count_ordinals(ranges) - count_ordinals(redis.call('HGET', open, field) or '')
  if ranges == '' then
    redis.call('HDEL', open, field)
  else
    redis.call('HSET', open, field, ranges)
  end
end
if opened ~= 0 then
  redis.call('HINCRBY', state, 'open', opened)
end

for _ = 1, n_rows do
  local us, row, due_ms = take(3)
  redis.call('HSET', rows, us, row)
  if due_ms ~= '' then
    redis.call('ZADD', due, due_ms, us)
  else
    redis.call('ZREM', due, us)
  end
end
if n_row_deletions > 0 then
  redis.call('HDEL', rows, unpack(args, at, at + n_row_deletions - 1))
  redis.call('ZREM', due, unpack(args, at, at + n_row_deletions - 1))
  at = at + n_row_deletions
end

local gone = 0
for i = 1, n_dead do
  local id, message, attempts, reason, code, key, size = take(7)
  local fields = records[i]
  if fields then
    local header = {'i', message, 'e', id, 'g', group, 'a', attempts, 'r', reason, 'c', code, 'k', key, 's', size}
    if fields.t then
      header[17], header[18] = 't', fields.t
    end
    local letter = redis.call('XADD', dlq, '*', unpack(header))
    redis.call('HSET', dlq_data, letter_index(group, message), letter)
    if fields.d then
      redis.call('HSET', dlq_data, letter, fields.d)
    end
  else
    gone = gone + 1
  end
end
if gone > 0 then
  redis.call('HINCRBY', state, 'dead', -gone)
  redis.call('HINCRBY', state, 'trimmed', gone)
end

-- A unique key names its message by the µs that the producer was told. That of a scheduled message is
-- not its µs in the log.
for i = 1, n_unique do
  local key, us = keys[10 + i], take(1)
  local holder, left, replaced = string.match(redis.call('GET', key) or '', '^(%d+) (%d+)(.*)$')
  if holder and (holder == us or text(tonumber(redis.call('ZSCORE', moved, scheduled_id(partition, holder)) or '0')) == us) then
    if tonumber(left) > 1 then
      redis.call('SET', key, holder .. ' ' .. text(tonumber(left) - 1) .. replaced, 'KEEPTTL')
    else
      redis.call('DEL', key)
    end
  end
end

if n_removals > 0 and (head[4] or '0') == gv then
  redis.call('XDEL', main, take(n_removals))
end

redis.call('HSET', state, 'ver', text(version), 'cursor', cursor, 'sent', sent)
if release ~= '0' then
  redis.call('HDEL', state, 'holder', 'unsure')
end
if release == '2' then
  redis.call('HSET', state, 'unsure', '1')
end
return answer()
