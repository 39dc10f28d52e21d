-- Reads a range of a session's cached messages, at most as much as the limits say and one value.
--
-- KEYS[1] chat:session:<id>:messages  LIST, see lib_list.lua
-- ARGV[1] after    seq, exclusive
-- ARGV[2] before   seq, exclusive; 0 means no upper bound
-- ARGV[3] desc     1 to begin at the upper end
-- ARGV[4] limit    maximum number of values
-- ARGV[5] max      bytes; the value with which the sum exceeds it is the last; 0 means no limit
-- ARGV[6] changes  1 to also return each message in the place of its last change, ascending only
-- RETURNS an empty list if nothing is cached; a list of one if the list is damaged; else the list's
--         state; the seq and the count of the oldest message; 1 if a limit ended the result, else 0;
--         and for each message of the range: its place in the log; its value.
local key, after, before, desc, limit, max, changes = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'

local length = redis.call('LLEN', key)
if length == 0 then
  return {}
end
local state, oldest, newest = redis.call('LINDEX', key, 0), redis.call('LINDEX', key, 1), redis.call('LINDEX', key, -1)
local head = string.match(state, '^{"epoch":"[^"]*","seq":')
-- Messages have consecutive counts, so their number shows whether one is missing.
if length < 2 or not head or not parse_state(state, head) or count_of(newest) - count_of(oldest) ~= length - 2 then
  return { 'damaged' }
end
local result = { state, seq_of(oldest), count_of(oldest), '1' }

-- The messages of the range are at low to high.
local low, ended = first_after(key, length, after), length
if before > 0 then
  ended = first_after(key, length, before - 1)
end
if not low or not ended then
  return { 'damaged' }
end
local high = ended - 1

-- chunk is the number of messages that are read at once. It bounds what is read and not returned.
local chunk, chunk_at, chunk_size = {}, 1, 8
local function next_message()
  if chunk_at > #chunk and low <= high then
    chunk, chunk_at = {}, 1
    if desc then
      local values = redis.call('LRANGE', key, math.max(low, high - chunk_size + 1), high)
      for i = #values, 1, -1 do
        chunk[#chunk + 1] = values[i]
      end
      high = high - #chunk
    else
      chunk = redis.call('LRANGE', key, low, math.min(high, low + chunk_size - 1))
      low = low + #chunk
    end
    chunk_size = math.min(2 * chunk_size, 64)
  end
  return chunk[chunk_at]
end

-- changed has the messages whose last change is in the range: the place of the change, and the index.
local changed, changed_at = {}, 1
if changes then
  for from = 1, length - 1, 16 do
    for i, value in ipairs(redis.call('LRANGE', key, from, from + 15)) do
      local place = changed_seq_of(value)
      if place ~= seq_of(value) and tonumber(place) > after and (before == 0 or tonumber(place) < before) then
        changed[#changed + 1] = { tonumber(place), place, from + i - 1 }
      end
    end
  end
  table.sort(changed, function(a, b) return a[1] < b[1] end)
end

local size, n = 0, 0
while n < limit and (max == 0 or size <= max) do
  local value, change = next_message(), changed[changed_at]
  local place = value and seq_of(value)
  if change and (not value or change[1] < tonumber(place)) then
    place, value = change[2], redis.call('LINDEX', key, change[3])
    changed_at = changed_at + 1
  elseif value then
    chunk_at = chunk_at + 1
  else
    result[4] = '0'
    break
  end
  result[#result + 1], result[#result + 2] = place, value
  size, n = size + #value, n + 1
end
return result
