-- Renews a lease.
--
-- KEYS[1] lease  STRING "<holder> <epoch>"
-- ARGV[1] fence  what the lease must be
-- ARGV[2] ttl    ms
-- RETURNS 1 if it was renewed, 0 if it is another's, or nobody's.
--
-- Safe to repeat.
local lease, fence, ttl = KEYS[1], ARGV[1], ARGV[2]

if redis.call('GET', lease) ~= fence then
  return 0
end
redis.call('PEXPIRE', lease, ttl)
return 1
