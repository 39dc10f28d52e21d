-- Decides which login has a slot of a user.
--
-- KEYS[1] meta         HASH of the shard
-- KEYS[2] log          LIST
-- KEYS[3] logins       HASH slot -> "<generation> <order> <connection> <node> <platform> <device>"
-- ARGV[1] node
-- ARGV[2] not_after    ms since 1970; the step changes nothing later
-- ARGV[3] ttl          ms until the slots of a user without logins are forgotten
-- ARGV[4] length       entries that the log keeps
-- ARGV[5] epoch        the epoch that the shard must have
-- ARGV[6] user
-- ARGV[7] slot
-- ARGV[8] generation
-- ARGV[9] connection
-- ARGV[10] platform
-- ARGV[11] device      may be empty
-- ARGV[12] order
-- RETURNS OK, now ms, 1 if the connection has the slot or 0, the position of the entry that was logged,
-- or 0, and of the connection that has the slot: generation, order, connection, node, platform, device.
-- LATE, FENCED or EPOCH, now ms, if nothing was changed.
--
-- The highest generation has the slot, and of one generation the connection with the highest order. An
-- entry is logged if the connection of the slot changes. The connection that has the slot never loses
-- it to itself: it keeps what it has if it is called with less.
--
-- Safe to repeat: the repeat finds its connection in the slot, or a newer login.
local meta, log, logins, node, not_after, ttl, length, expected, user, slot, generation, connection, platform, device, order = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11], tonumber(ARGV[12])

local now = now_ms()
local refused, seq = admit(meta, now, not_after, node, false, expected)
if refused then
  return {refused, now}
end

local has = {string.match(redis.call('HGET', logins, slot) or '', '^(%d+) (%d+) (%S+) (%S+) ([1-9]) (%S*)$')}
local highest, last, holder = tonumber(has[1] or 0), tonumber(has[2] or 0), has[3]
local mine = holder == connection
local older = generation < highest or generation == highest and order < last
if older and not mine then
  return {'OK', now, 0, 0, highest, last, holder, has[4], tonumber(has[5]), has[6]}
end
if older then
  generation, order = highest, last
end
local login = table.concat({text(generation), text(order), connection, node, platform, device}, ' ')
redis.call('HSET', logins, slot, login)
redis.call('PEXPIRE', logins, ttl)
local logged = 0
if holder and not mine then
  logged = seq + 1
  append(meta, log, logged, now, {table.concat({text(logged), text(now), 'L', slot, login, user}, ' ')}, length)
end
return {'OK', now, 1, logged, generation, order, connection, node, tonumber(platform), device}
