-- Ends a lease.
--
-- KEYS[1] lease  STRING "<holder> <epoch>"
-- ARGV[1] fence  what the lease must be
-- RETURNS 1 if it was ended, 0 if it is another's, or nobody's.
--
-- Safe to repeat.
local lease, fence = KEYS[1], ARGV[1]

if redis.call('GET', lease) ~= fence then
  return 0
end
return redis.call('DEL', lease)
