-- Appends dead letters to the log again, for their groups only, and removes them from the dead letters.
-- Not allowed if Redis is out of memory.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta      HASH
-- KEYS[3] S:sizes     HASH
-- KEYS[4] S:delayed   ZSET
-- KEYS[5] S:dlq       STREAM
-- KEYS[6] S:dlq:data  HASH
-- KEYS[7] S:replayed  ZSET
-- KEYS[8...] S:g:<group>  HASH of each group of the partition
-- ARGV[1] uid
-- ARGV[2] gv      the version of the set of groups
-- ARGV[3] groups  their names, separated by spaces
-- ARGV[4] max     the most unsettled messages; 0 for no bound
-- ARGV[5] drop    1 to remove the oldest messages for new ones
-- ARGV[6] budget  bytes of records; a single record may be larger
-- ARGV[7] after   the ID after which to begin, if no IDs are given
-- ARGV[8] group   whose dead letters; empty for all
-- ARGV[9] n       how many at most
-- ARGV[10...] the IDs of dead letters
-- RETURNS {how many were replayed, how many IDs were looked at, the last ID that was looked at, 1 if there
--         may be more, 1 if the partition was full, last µs, last ord}. Errors: NOTOPIC, STALE.
--
-- Safe to repeat: what was replayed is not there any more. A dead letter whose group does not exist, or
-- without a record, stays.
local main, meta, sizes, delayed, dlq, data, replayed, keys, uid, gv, groups, max, drop, budget, after, group, n, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV

local head = redis.call('HMGET', meta, 'uid', 'gv', 'last', 'ord')
local last, ord = tonumber(head[3]), tonumber(head[4])
if head[1] ~= uid or not last or not ord then
  return redis.error_reply('NOTOPIC')
end
if (head[2] or '0') ~= gv then
  return redis.error_reply('STALE')
end
local states, key = {}, 8
for name in string.gmatch(groups, '%S+') do
  states[name], key = keys[key], key + 1
end

local free = math.huge
if max > 0 then
  local scheduled = redis.call('ZCARD', delayed)
  if not drop or scheduled >= max then
    local used = #keys >= 8 and unsettled(keys, 8, #keys - 7, ord) or redis.call('XLEN', main)
    free = math.max(max - scheduled - used, 0)
  end
end

local us, count, bytes, full, refused = math.max(last + 1, now_us()), 0, 0, 0, false
local function replay(id, fields)
  local state, size, message = states[fields.g or ''], redis.call('HSTRLEN', data, id), fields.i
  local its_us = string.match(fields.e or '', '^(%d+)%-')
  if not state or not message or not its_us or redis.call('HEXISTS', state, 'uid') == 0 or redis.call('HEXISTS', data, id) == 0 then
    return 0
  end
  if count >= free then
    full = 1
    return nil
  end
  if count > 0 and bytes + size > budget then
    return nil
  end
  local produced = fields.t or text(math.floor(tonumber(its_us) / 1000))
  local added = redis.pcall('XADD', main, string.format('%d-%d', us, ord + 1), 'd', redis.call('HGET', data, id), 'i', message, 't', produced, 'g', fields.g)
  if added.err then
    -- A stream that is ahead of its meta: the partition must be made anew.
    refused = true
    return nil
  end
  remove_letter(dlq, data, id, fields)
  ord, last = ord + 1, us
  redis.call('HSET', meta, 'last', text(us), 'ord', text(ord))
  redis.call('HINCRBY', meta, 'replayed', 1)
  redis.call('HINCRBY', state, 'replayed', 1)
  local a, b, c = replayed_members(us, ord, fields.g, message)
  redis.call('ZADD', replayed, 0, a, 0, b, 0, c)
  note_size(sizes, ord, size)
  us, count, bytes = us + 1, count + 1, bytes + size
  return 1
end

local done, ids, at, more = each_letter(dlq, after, group, n, args, 10, replay)
if refused and done == 0 then
  return redis.error_reply('NOTOPIC')
end
if done > 0 and max > 0 and drop then
  drop_oldest(main, delayed, max, done)
end
return {done, ids, at, more, full, text(last), text(ord)}
