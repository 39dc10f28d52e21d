-- Begins a new epoch of a shard, unless another caller has.
--
-- KEYS[1] meta   HASH of the shard
-- KEYS[2] log    LIST
-- ARGV[1] old    the epoch that ends; empty if there is none
-- ARGV[2] fresh  the epoch that begins
-- RETURNS what head returns, after the step.
--
-- Safe to repeat: the repeat finds another epoch than `old`.
local meta, log, old, fresh = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local now = now_ms()
if (redis.call('HGET', meta, 'epoch') or '') == old then
  begin_epoch(meta, log, fresh, now)
end
return head(meta, now)
