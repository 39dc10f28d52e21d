-- Takes the lease of a partition in a group.
--
-- KEYS[1] meta   HASH of the partition
-- KEYS[2] main   STREAM
-- KEYS[3] lease  STRING "<holder> <epoch>"
-- KEYS[4] epoch  STRING the last epoch
-- KEYS[5] retry  STREAM of the group
-- ARGV[1] uid     of the topic
-- ARGV[2] group
-- ARGV[3] holder
-- ARGV[4] ttl     ms
-- RETURNS the epoch; NOTOPIC if the topic is not there, NOGROUP if the group is not, HELD if another holds the lease.
--
-- Safe to repeat: who holds the lease is given it again, with the same epoch, and renewed.
local meta, main, lease, epoch, retry, uid, group, holder, ttl = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HGET', meta, 'uid') ~= uid then
  return redis.error_reply('NOTOPIC no such topic')
end
if redis.pcall('XPENDING', main, group).err or redis.pcall('XPENDING', retry, group).err then
  return redis.error_reply('NOGROUP no such consumer group')
end
local value = redis.call('GET', lease)
if value then
  local other, own = string.match(value, '^(.*) (%d+)$')
  if other ~= holder then
    return redis.error_reply('HELD another holds the lease')
  end
  redis.call('PEXPIRE', lease, ttl)
  return own
end

-- Redis may have lost the last epochs, but they were not later than its clock was then.
local new = text(math.max(now_us(), tonumber(redis.call('GET', epoch) or '0') + 1))
redis.call('SET', epoch, new)
redis.call('SET', lease, holder .. ' ' .. new, 'PX', ttl)

-- Each epoch reads under a name of its own. Those that have nothing pending are of no more use.
for _, stream in ipairs({main, retry}) do
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    if consumer[4] == 0 then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2])
    end
  end
end
return new
