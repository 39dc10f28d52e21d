-- Tells who has the lease of a partition in a group.
--
-- KEYS[1] lease  STRING "<holder> <epoch>"
-- KEYS[2] epoch  STRING the last epoch
-- RETURNS {what the lease is, or "", how much of it is left in ms, the last epoch}.
local lease, epoch = KEYS[1], KEYS[2]

return {redis.call('GET', lease) or '', redis.call('PTTL', lease), redis.call('GET', epoch) or '0'}
