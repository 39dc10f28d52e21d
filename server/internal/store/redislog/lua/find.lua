-- Finds a message by its ID: scheduled, in the log, or among the dead letters.
--
-- KEYS[1] stream:topic:{<topic>:<p>}  STREAM (S)
-- KEYS[2] S:meta          HASH
-- KEYS[3] S:delayed       ZSET message id -> due ms
-- KEYS[4] S:delayed:data  HASH message id -> record
-- KEYS[5] S:moved         ZSET message id -> µs in the log
-- KEYS[6] S:dlq           STREAM
-- KEYS[7] S:dlq:data      HASH
-- KEYS[8] S:replayed      ZSET
-- ARGV[1] uid
-- ARGV[2] id  of the message
-- ARGV[3] µs  in its ID, empty if it was scheduled
-- ARGV[4...] the groups whose dead letters are looked for
-- RETURNS {due ms or empty; its entry, or false if it is not in the log; its record if there is no entry,
--         or false; a list of each replayed dead letter in the log: group, µs, ord, the latest last; and of
--         each dead letter its ID and header}. Errors: NOTOPIC.
local main, meta, delayed, data, moved, dlq, dlq_data, replayed, uid, id, us, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], ARGV[1], ARGV[2], ARGV[3], ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC')
end
local due = redis.call('ZSCORE', delayed, id)
if due then
  return {text(tonumber(due)), false, redis.call('HGET', data, id), {}}
end

local function entry_at(its_us)
  return redis.call('XRANGE', main, its_us, its_us, 'COUNT', 1)[1] or false
end
local at = redis.call('ZSCORE', moved, id)
at = at and text(tonumber(at)) or us
local entry = at ~= '' and entry_at(at)
-- The entry of another message can be there: one that was scheduled, or a replayed dead letter.
if entry and (named(entry[2]).i or id) ~= id then
  entry = false
end

local replays, record, first = {}, false, nil
for _, member in ipairs(redis.call('ZRANGEBYLEX', replayed, '[i ' .. id .. ' ', '(i ' .. id .. '!', 'LIMIT', 0, 1000)) do
  local group, its_us, ord = string.match(member, '^i %S+ (%S+) 0*(%d+) (%d+)$')
  if not first then
    local oldest = redis.call('XRANGE', main, '-', '+', 'COUNT', 1)[1]
    first = oldest and tonumber(string.match(oldest[1], '^%d+')) or math.huge
  end
  if tonumber(its_us) >= first then
    replays[#replays + 1], replays[#replays + 2], replays[#replays + 3] = group, its_us, ord
  end
end
if not entry and #replays > 0 then
  local other = entry_at(replays[#replays - 1])
  record = other and named(other[2]).d or false
end

local answer = {'', entry, false, replays}
for i = 4, #args do
  local letter = redis.call('HGET', dlq_data, letter_index(args[i], id))
  local header = letter and redis.call('XRANGE', dlq, letter, letter)[1]
  if header then
    record = record or not entry and redis.call('HGET', dlq_data, letter)
    answer[#answer + 1] = header
  end
end
answer[3] = record
return answer
