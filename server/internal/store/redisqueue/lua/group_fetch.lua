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
-- ARGV[6] mark      the stats' fetched: entries that were fetched so far, as far as the holder knows
-- RETURNS {entries looked at, those of retry, those of main}; NOTOPIC if the topic is not there, NOGROUP if the group
-- is not, FENCED if the lease is another's, BEHIND if not as many entries were fetched as the holder knows of.
--
-- Safe to repeat: what a lost answer held is pending, and until group_claim has told the new mark nothing younger is delivered. So
-- a call that comes here long after it was given up does no harm either.
local meta, lease, retry, main, stats, uid, fence, group, consumer, n, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local refused = may_fetch(meta, lease, main, stats, uid, fence, group, mark)
if refused then
  return refused
end
local retries = read_new(retry, stats, group, consumer, n)
local mains = read_main(main, stats, group, consumer, n - #retries)
return {#retries + #mains, retries, mains}
