-- Reads a range of a channel's cached messages, at most as much as the limits say and one value.
--
-- KEYS[1] msg_cache:<channel>  ZSET, see lib_cache.lua
-- ARGV[1] after    seq, exclusive
-- ARGV[2] before   seq, exclusive; 0 means no upper bound
-- ARGV[3] desc     1 to begin at the upper end
-- ARGV[4] limit    maximum number of values
-- ARGV[5] max      bytes; the value with which the sum exceeds it is the last; 0 means no limit
-- ARGV[6] changes  1 to also return each message in the place of its last change, ascending only
-- RETURNS an empty list if nothing is cached; else the set's state; the seq and the count of the
--         oldest message; 1 if a limit ended the result, else 0; and for each message of the range:
--         its place in the log; its value.
local key, after, before, desc, limit, max, changes = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'

local state = redis.call('ZRANGEBYSCORE', key, 0, 0)[1]
local oldest = redis.call('ZRANGEBYSCORE', key, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if not state or not oldest[1] then
  return {}
end
local result = { state, oldest[2], count_of(oldest[1]), '1' }

-- chunk is the number of messages that are read at once. It bounds what is read and not returned.
local chunk, chunk_at = {}, 1
local skip, chunk_size = 0, 8
local first, last = '(' .. after, before == '0' and '+inf' or '(' .. before
local function next_message()
  if chunk_at > #chunk then
    if desc then
      chunk = redis.call('ZREVRANGEBYSCORE', key, last, first, 'WITHSCORES', 'LIMIT', skip, chunk_size)
    else
      chunk = redis.call('ZRANGEBYSCORE', key, first, last, 'WITHSCORES', 'LIMIT', skip, chunk_size)
    end
    skip, chunk_at = skip + chunk_size, 1
    chunk_size = math.min(2 * chunk_size, 64)
  end
  return chunk[chunk_at + 1], chunk[chunk_at]
end

local changed, changed_at = {}, 1
if changes then
  local low = before == '0' and '-inf' or '(-' .. before
  changed = redis.call('ZREVRANGEBYSCORE', key, '(-' .. after, low, 'WITHSCORES', 'LIMIT', 0, limit)
end

local size, n = 0, 0
while n < limit and (max == 0 or size <= max) do
  local place, value = next_message()
  local change = changed[changed_at + 1] and string.sub(changed[changed_at + 1], 2)
  if change and (not place or tonumber(change) < tonumber(place)) then
    local seq = string.sub(changed[changed_at], 3)
    place, value = change, redis.call('ZRANGEBYSCORE', key, seq, seq)[1]
    changed_at = changed_at + 2
  else
    chunk_at = chunk_at + 2
  end
  if not place then
    result[4] = '0'
    break
  end
  if not value then
    return {} -- the message of a mark is missing: the set is damaged
  end
  result[#result + 1], result[#result + 2] = place, value
  size, n = size + #value, n + 1
end
return result
