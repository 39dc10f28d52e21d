-- Shared by all scripts. Ids and times are doubles here, which are exact up to 2^53.

-- now_us gives this server's time. A script calls one of now_us, now_ms and now_up, and once: two calls may
-- differ, which is what look_pending calls it twice for.
local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- now_ms is rounded down: what is due at that millisecond is due.
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- now_up is rounded up: a delay that begins then never ends early. It counts as now_ms does.
local function now_up()
  return math.ceil(now_us() / 1000)
end

-- due_at gives when something is due: `delay` ms after now (now_up), or if that is empty at `at` ms, but not before now.
local function due_at(now, delay, at)
  if delay ~= '' then
    return now + tonumber(delay)
  end
  return math.max(now, tonumber(at))
end

-- text writes a whole number as Redis does; Lua's own way loses digits after the 14th.
local function text(n)
  return string.format('%.0f', n)
end

-- parts reads a stream id.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), #seq > 15 and math.huge or tonumber(seq)
end

-- before reports whether a stream id is lower than another.
local function before(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  return a_ms < b_ms or a_ms == b_ms and a_seq < b_seq
end

-- after gives the lowest stream id above one. The last of a millisecond is known by its 20 digits.
local function after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if #seq > 15 then
    return text(tonumber(ms) + 1) .. '-0'
  end
  return ms .. '-' .. text(tonumber(seq) + 1)
end

-- named gives the fields of a stream's entry by their names.
local function named(fields)
  local all = {}
  for at = 1, #fields, 2 do
    all[fields[at]] = fields[at + 1]
  end
  return all
end

-- is_count reports whether a field is a whole number that arithmetic keeps exact.
local function is_count(value)
  return #value <= 15 and string.find(value, '^%d+$') ~= nil
end

-- fields_of gives the fields of a message's entry by their names. Of one that no script of ours has written so, or that was
-- damaged, a field without its form is as good as absent, and `broken` is set: nothing but a dead letter can become of it.
local function fields_of(entry)
  local fields = named(entry)
  for _, name in ipairs({'a', 't'}) do
    if fields[name] and not is_count(fields[name]) then
      fields[name], fields.broken = nil, true
    end
  end
  if fields.i and not is_count(string.match(fields.i, '^%d+%-(%d+)%-%d+d?$') or '') then
    fields.i, fields.broken = nil, true
  end
  fields.broken = fields.broken or not fields.d
  return fields
end

-- pack_item gives what stands for an entry outside of streams: a attempts so far, i message id, t due ms or 0, k key (or
-- empty), d record.
local function pack_item(a, i, t, k, d)
  return a .. ' ' .. i .. ' ' .. t .. ' ' .. #k .. ' ' .. k .. d
end

-- unpack_item gives a, i, t, k, d as text; nil of what is no item.
local function unpack_item(item)
  local a, i, t, length, at = string.match(item, '^(%d+) (%S+) (%d+) (%d+) ()')
  if not a then
    return nil
  end
  local rest = at + tonumber(length)
  return a, i, t, string.sub(item, at, rest - 1), string.sub(item, rest)
end

-- append_item adds an item to a stream and gives its id there, or false if there is no stream. What is no item is added all the
-- same, as x, under the message's id if that is known: who fetches it makes a dead letter of it.
local function append_item(stream, item, message)
  local a, i, t, k, d = unpack_item(item)
  if not a then
    local call = {'XADD', stream, 'NOMKSTREAM', '*', 'x', item}
    if message then
      call[#call + 1], call[#call + 2] = 'i', message
    end
    return redis.call(unpack(call))
  end
  local call = {'XADD', stream, 'NOMKSTREAM', '*', 'd', d, 'i', i}
  if k ~= '' then
    call[#call + 1], call[#call + 2] = 'k', k
  end
  if a ~= '0' then
    call[#call + 1], call[#call + 2] = 'a', a
  end
  if t ~= '0' then
    call[#call + 1], call[#call + 2] = 't', t
  end
  return redis.call(unpack(call))
end

-- first_due gives the due time, in ms, of the first message of a line, or nil if none waits.
local function first_due(line)
  local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- wake publishes the partition's name if the line's first message has become an earlier one than `old` (first_due before the
-- change), or is overdue. A script calls it once, at its end.
local function wake(line, old, now, channel, partition)
  local first = first_due(line)
  if first and (not old or first < old or first <= now) then
    redis.call('PUBLISH', channel, partition)
  end
end

-- groups_of gives, for each group of a stream by its name, the last id that it was given and the lowest that it has pending
-- (nil for none).
local function groups_of(stream)
  local groups = {}
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local g = named(info)
    local lowest
    if g['pending'] > 0 then
      lowest = redis.call('XPENDING', stream, g['name'])[2]
    end
    groups[g['name']] = {last = g['last-delivered-id'], lowest = lowest or nil}
  end
  return groups
end
