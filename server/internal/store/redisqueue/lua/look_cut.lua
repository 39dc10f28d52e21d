-- Trims a partition by hand: looks at its oldest messages and removes those that are not to be kept.
--
-- KEYS[1] meta  HASH of the partition
-- KEYS[2] main  STREAM
-- KEYS[3...]    for each group: retry STREAM; keys HASH; parked ZSET; parked data HASH; stats HASH
-- ARGV[1] uid        of the topic
-- ARGV[2] partition
-- ARGV[3] messages   how many of the newest are kept, if that is not negative
-- ARGV[4] age        ms: else what is younger is kept
-- ARGV[5] force      1 if those are removed too that groups have not settled
-- ARGV[6] n          how many to look at
-- ARGV[7...]         the groups
-- RETURNS {how many were removed, how many times a group lost one that it had not settled, 1 if there may be more}; NOTOPIC if the
-- topic is not there.
--
-- Safe to repeat: it does what is left to do.
local meta, main, keys, uid, partition, messages, age, force, n, args = KEYS[1], KEYS[2], KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6]), ARGV

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
local length = redis.call('XLEN', main)
if length == 0 then
  return {0, 0, 0}
end
local known, info, oldest_kept = {}, groups_of(main), now_ms() - age
for at = 7, #args do
  known[args[at]] = 3 + (at - 7) * 5
end
if force then
  for name in pairs(info) do
    -- A group that the caller does not know yet could not be told what it loses.
    if not known[name] then
      return redis.error_reply('CONFLICT the topic was changed meanwhile')
    end
  end
end

-- read tells whether a group was given an entry, settled whether it has nothing to do with it any more.
local function read(g, id)
  return not before(g.last, id)
end

local function settled(g, id)
  return read(g, id) and (not g.lowest or before(id, g.lowest))
end

local function kept(place, id)
  if messages >= 0 and place > length - messages or messages < 0 and parts(id) > oldest_kept then
    return true
  end
  if not force then
    for _, g in pairs(info) do
      if not settled(g, id) then
        return true
      end
    end
  end
  return false
end

local gone = {}
for place, entry in ipairs(redis.call('XRANGE', main, '-', '+', 'COUNT', n)) do
  if kept(place, entry[1]) then
    break
  end
  gone[place] = entry
end
if #gone == 0 then
  return {0, 0, 0}
end

-- take_from takes what goes from a group, and tells how much of it the group had not settled.
local function take_from(name, g, k)
  local n, unread = 0, 0
  for _, entry in ipairs(gone) do
    local id = entry[1]
    if not read(g, id) then
      n, unread = n + 1, unread + 1
    elseif not settled(g, id) and redis.call('XACK', main, name, id) == 1 then
      local fields = fields_of(entry[2])
      free_key(keys[k + 1], keys[k + 2], keys[k + 3], keys[k], fields.k or '', message_of(partition, id, fields))
      n = n + 1
    end
  end
  if n > 0 then
    redis.call('HINCRBY', keys[k + 4], 'trimmed', n)
    redis.call('HINCRBY', keys[k + 4], 'read', unread)
  end
  return n
end

local lost = 0
if force then
  for name, g in pairs(info) do
    lost = lost + take_from(name, g, known[name])
  end
end
redis.call('XTRIM', main, 'MAXLEN', '=', length - #gone)
return {#gone, lost, #gone == n and 1 or 0}
