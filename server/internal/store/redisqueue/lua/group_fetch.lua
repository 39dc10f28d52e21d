-- Delivers new entries to a lease's holder, retries first.
--
-- KEYS[1] meta   HASH of the partition
-- KEYS[2] lease  STRING "<holder> <epoch>"
-- KEYS[3] retry  STREAM of the group
-- KEYS[4] main   STREAM
-- KEYS[5] stats  HASH
-- ARGV[1] uid       of the topic
-- ARGV[2] fence     what the lease must be
-- ARGV[3] group
-- ARGV[4] consumer  the epoch's
-- ARGV[5] n         the most entries
-- RETURNS {entries looked at, those of retry, those of main}; NOTOPIC if the topic is not there, NOGROUP if the group
-- is not, FENCED if the lease is another's.
--
-- Safe to repeat: it delivers what comes next. What a lost answer held is pending, and group_claim gives it.
local meta, lease, retry, main, stats, uid, fence, group, consumer, n = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local refused = may_fetch(meta, lease, main, uid, fence, group)
if refused then
  return refused
end
local retries = read_new(retry, group, consumer, n)
local mains = read_main(main, stats, group, consumer, n - #retries)
return {#retries + #mains, retries, mains}
