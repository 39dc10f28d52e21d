-- Delivers new entries of a topic of strict order to a lease's holder, retries first. An entry whose key has another
-- unsettled message is not delivered, but parked until that one is settled.
--
-- KEYS[1] meta         HASH of the partition
-- KEYS[2] lease        STRING "<holder> <epoch>"
-- KEYS[3] retry        STREAM of the group
-- KEYS[4] main         STREAM
-- KEYS[5] keys         HASH key -> "<its unsettled message> <entry>"
-- KEYS[6] parked       ZSET of messages that wait for their key, all of score 0
-- KEYS[7] parked data  HASH the same -> item
-- KEYS[8] stats        HASH
-- ARGV[1] uid        of the topic
-- ARGV[2] fence      what the lease must be
-- ARGV[3] group
-- ARGV[4] consumer   the epoch's
-- ARGV[5] n          the most entries
-- ARGV[6] mark       the stats' fetched: entries that were fetched so far, as far as the holder knows
-- ARGV[7] partition
-- RETURNS {entries looked at, those of retry, those of main}; NOTOPIC if the topic is not there, NOGROUP if the group
-- is not, FENCED if the lease is another's, BEHIND if not as many entries were fetched as the holder knows of.
--
-- Safe to repeat: what a lost answer held is pending, and until group_claim has told the new mark nothing younger is delivered. So
-- a call that comes here long after it was given up does no harm either.
local meta, lease, retry, main, keys, parked, parked_data, stats, uid, fence, group, consumer, n, mark, partition = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]

local refused = may_fetch(meta, lease, main, stats, uid, fence, group, mark)
if refused then
  return refused
end

-- admit gives those of a stream's new entries whose keys are free, or theirs, and parks the others, in the order in which
-- they came.
local function admit(entries, stream, own)
  local admitted = {}
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], fields_of(entry[2])
    -- One that is broken becomes a dead letter, and holds up nothing until then.
    local key, message = not fields.broken and fields.k, message_of(partition, entry[1], fields)
    local holder = key and holder_of(keys, key)
    if holder and holder ~= message then
      local member = parked_member(key, id, own)
      redis.call('HSET', parked_data, member, item_of(fields.a or '0', message, fields))
      redis.call('ZADD', parked, 0, member)
      ack(stream, group, own, id)
    else
      if key then
        hold_key(keys, key, message, id, own)
      end
      admitted[#admitted + 1] = entry
    end
  end
  return admitted
end

local retries = read_new(retry, stats, group, consumer, n)
local mains = read_main(main, stats, group, consumer, n - #retries)
return {#retries + #mains, admit(retries, retry, true), admit(mains, main, false)}
