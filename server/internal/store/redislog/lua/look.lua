-- Counts what a partition holds, at one moment.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta      HASH
-- KEYS[3] S:delayed   ZSET
-- KEYS[4] S:dlq       STREAM
-- KEYS[5] S:replayed  ZSET
-- KEYS[6...] of each group S:g:<group> (HASH) and S:g:<group>:due (ZSET)
-- ARGV[1] uid
-- ARGV[2] gv  the version of the set of groups that the keys are from
-- ARGV[3...] the names of the groups
-- RETURNS {now µs, last ord, messages in the log, scheduled, dead letters, scheduled messages that were
--         cancelled, replayed dead letters; the IDs in the stream of the oldest and the newest message and
--         their field i, or empty; of each group a list, empty if its state is lost: retrying, entries that
--         are gone and were not looked at, entries ahead that are for other groups, µs of the oldest message
--         that is not settled or 0, and its state}. Numbers are text. Errors: NOTOPIC, STALE.
--
-- Up to two messages, and 1 MiB of others, are read for their IDs; no payload is returned.
local main, meta, delayed, dlq, replayed, keys, uid, gv, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS, ARGV[1], ARGV[2], ARGV

local head = redis.call('HMGET', meta, 'uid', 'gv', 'last', 'ord', 'cancelled', 'replayed')
if head[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if (head[2] or '0') ~= gv then
  return redis.error_reply('STALE')
end
local last, ord = tonumber(head[3] or '0'), tonumber(head[4] or '0')

-- place_of returns the ID, µs, ordinal and field i of an entry.
local function place_of(entry)
  if not entry then
    return '', nil, nil, ''
  end
  local us, its_ord = string.match(entry[1], '^(%d+)-(%d+)$')
  return entry[1], tonumber(us), tonumber(its_ord), named(entry[2]).i or ''
end
local first_id, first_us, first_ord, first_name = place_of(redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1])
local last_id, _, _, last_name = place_of(redis.call('XREVRANGE', main, '+', '-', 'COUNT', 1)[1])
-- An empty log begins behind its last entry.
first_us, first_ord = first_us or last + 1, first_ord or ord + 1

-- first_after returns the µs of the first message after a position. Above 1 MiB it returns that of the
-- position.
local looked, bytes = {}, 0
local function first_after(us)
  if us < first_us then
    return first_us <= last and first_us or 0
  end
  if not looked[us] and bytes < 1048576 then
    local entry = redis.call('XRANGE', main, text(us + 1), '+', 'COUNT', 1)[1]
    local _, its_us = place_of(entry)
    looked[us] = its_us or 0
    bytes = bytes + (entry and #(entry[2][2] or '') or 0)
  end
  return looked[us] or us
end

local any = redis.call('ZCARD', replayed) > 0
local function count(group, state, due)
  local fields = redis.call('HMGET', state, 'uid', 'cursor', 'sent')
  local cursor = string.match(fields[2] or '', '^(%d+)')
  local sent, sent_ord = string.match(fields[3] or '', '^(%d+)-(%d+)$')
  if fields[1] ~= uid or not cursor or not sent then
    return {}
  end
  cursor, sent, sent_ord = tonumber(cursor), tonumber(sent), tonumber(sent_ord)
  local from, oldest = math.max(sent, first_us - 1), 0
  -- The cursor is just before the first message that is not settled.
  if cursor < sent then
    oldest = cursor + 1
  elseif sent < last then
    oldest = first_after(sent)
  end
  return {
    text(redis.call('ZCARD', due)), text(math.max(first_ord - 1 - sent_ord, 0)), text(any and replayed_elsewhere(replayed, group, from, last) or 0),
    text(oldest), redis.call('HGETALL', state),
  }
end

local answer = {
  text(now_us()), text(ord), text(redis.call('XLEN', main)), text(redis.call('ZCARD', delayed)), text(redis.call('XLEN', dlq)),
  head[5] or '0', head[6] or '0', first_id, first_name, last_id, last_name,
}
for i = 3, #args do
  answer[#answer + 1] = count(args[i], keys[2 * i], keys[2 * i + 1])
end
return answer
