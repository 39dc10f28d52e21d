-- Renews a lease.
--
-- KEYS[1] lease  STRING "<holder> <epoch>"
-- KEYS[2] main   STREAM
-- KEYS[3] retry  STREAM of the group
-- ARGV[1] fence  what the lease must be
-- ARGV[2] ttl    ms
-- ARGV[3] group
-- RETURNS how many entries are pending in both streams; -1, and it was not renewed, if it is another's, or nobody's.
--
-- Safe to repeat.
local lease, main, retry, fence, ttl, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]

if redis.call('GET', lease) ~= fence then
  return -1
end
redis.call('PEXPIRE', lease, ttl)
local pending = 0
for _, stream in ipairs({main, retry}) do
  local summary = redis.pcall('XPENDING', stream, group)
  pending = pending + (summary.err and 0 or summary[1])
end
return pending
