-- Replaces a node's parts of users, and logs the changes of their states.
--
-- KEYS[1] meta       HASH of the shard
-- KEYS[2] online     ZSET users with any platform, all of score 0
-- KEYS[3] log        LIST
-- KEYS[4] members    SET  users of whom the node has a part
-- KEYS[5...] users   ZSET "<node> <part>" -> expiry ms; one for each user of ARGV, in the same order
-- ARGV[1] node
-- ARGV[2] not_after  ms since 1970; the step changes nothing later
-- ARGV[3] ttl        ms until a part expires
-- ARGV[4] length     entries that the log keeps
-- ARGV[5] epoch      the epoch that the shard must have
-- ARGV[6] sweep      1 if the fence of the node does not apply, or 0
-- ARGV[7...]         for each user: id; part, or empty for none; mode (0 normal, 1 restore, 2 force);
--                    cause
-- RETURNS OK, now ms, the position of the log's last entry and its time or 0, and for each user the
-- position of the entry that was logged, or 0, and the state after the step. LATE, FENCED or EPOCH, now ms, if nothing
-- was changed.
--
-- Mode 1 logs nothing only until the epoch is settled: then a user whom the store does not have counts
-- as offline.
--
-- The state before the step is the union of the stored parts, whether they have expired or not, so
-- the removal of an expired part is a change too. A user whose key has expired as a whole is still in
-- `online`, and goes offline by this step at the latest.
--
-- A renewal costs three commands for each user, and a change from or to offline at most four; for each
-- call at most nine are added.
--
-- Safe to repeat: the repeat finds its own parts, and logs nothing except in mode 2.
local meta, online, log, members, keys, node, not_after, ttl, length, expected, sweep, args = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS, ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV

local now = now_ms()
local refused, seq, last, settled = admit(meta, now, not_after, node, sweep == '1', expected)
if refused then
  return {refused, now}
end

-- union returns the state that follows from parts that were joined: platforms in ascending order,
-- and one is in the background only if it is in all parts that have it.
local unions = {['']=''}
local function union(parts)
  local state = unions[parts]
  if not state then
    local flags = {}
    for platform, flag in string.gmatch(parts, '([1-9])([bf])') do
      if flags[platform] ~= 'f' then
        flags[platform] = flag
      end
    end
    state = ''
    for platform = 1, 9 do
      local flag = flags[tostring(platform)]
      if flag then
        state = state .. platform .. flag
      end
    end
    unions[parts] = state
  end
  return state
end

local expiry, stamp = text(now + ttl), ' ' .. text(now) .. ' '
local joined, left, appeared, gone, lines = {}, {}, {}, {}, {}
local reply = {'OK', now, 0, 0}
for i = 1, (#args - 6) / 4 do
  local id, part, mode, cause, key = args[4 * i + 3], args[4 * i + 4], args[4 * i + 5], args[4 * i + 6], keys[i + 4]
  local mine, before, after, old = node .. ' ' .. part, '', '', {}
  local stored = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for at = 1, #stored, 2 do
    local owner, its = string.match(stored[at], '^(%S+) (%S+)$')
    before = before .. (its or '')
    if stored[at] ~= mine then
      if owner == node or tonumber(stored[at + 1]) <= now then
        old[#old + 1] = stored[at]
      else
        after = after .. (its or '')
      end
    end
  end
  if part ~= '' then
    after = after .. part
    redis.call('ZADD', key, expiry, mine)
    joined[#joined + 1] = id
  else
    left[#left + 1] = id
  end
  if #old > 0 then
    redis.call('ZREM', key, unpack(old))
  end
  if after ~= '' then
    redis.call('PEXPIRE', key, ttl)
  end
  before, after = union(before), union(after)
  local changed = before ~= after
  if after == '' then
    if before ~= '' then
      gone[#gone + 1] = id
    elseif redis.call('ZREM', online, id) == 1 then
      changed = true
    end
  elseif before == '' then
    appeared[#appeared + 1] = '0'
    appeared[#appeared + 1] = id
  end
  local logged = 0
  if changed and (mode ~= '1' or settled) or mode == '2' and after == '' then
    seq = seq + 1
    logged = seq
    lines[#lines + 1] = text(seq) .. stamp .. cause .. ' ' .. after .. ' ' .. id
  end
  reply[#reply + 1] = logged
  reply[#reply + 1] = after
end
if #joined > 0 then
  redis.call('SADD', members, unpack(joined))
end
if #left > 0 then
  redis.call('SREM', members, unpack(left))
end
if #appeared > 0 then
  redis.call('ZADD', online, unpack(appeared))
end
if #gone > 0 then
  redis.call('ZREM', online, unpack(gone))
end
append(meta, log, seq, now, lines, length)
reply[3], reply[4] = seq, #lines > 0 and now or last
return reply
