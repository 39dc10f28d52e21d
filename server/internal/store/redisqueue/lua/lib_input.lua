-- Shared by the scripts that take messages, and that remove what is done with. It needs lib_group in front.

-- settled_below gives the id from which on some group may still need entries, or nil if nothing may be removed: there is no
-- group, or one of `names` is not there yet.
local function settled_below(main, names)
  local groups = groups_of(main)
  for _, name in ipairs(names) do
    if not groups[name] then
      return nil
    end
  end
  local floor
  for _, g in pairs(groups) do
    local needed = g.lowest or after(g.last)
    if not floor or before(needed, floor) then
      floor = needed
    end
  end
  return #names > 0 and floor or nil
end

-- trim_below removes up to n of the oldest entries whose id is below floor, and tells how many.
local function trim_below(stream, floor, n)
  if n <= 0 then
    return 0
  end
  -- Whole nodes first, which is cheap and reads no entry; what is left fits into one node.
  local removed = redis.call('XTRIM', stream, 'MINID', '~', floor, 'LIMIT', n)
  if removed == n then
    return removed
  end
  local rest = redis.call('XRANGE', stream, '-', '(' .. floor, 'COUNT', math.min(n - removed, 1000))
  if #rest == 0 then
    return removed
  end
  return removed + redis.call('XTRIM', stream, 'MINID', '=', after(rest[#rest][1]))
end

-- trim_settled removes up to n entries that all groups have settled and that retention does not keep: it keeps the newest
-- max_messages of those younger than max_age ms (0: any number), and none if max_age is 0.
local function trim_settled(main, names, now, max_age, max_messages, n)
  local floor = settled_below(main, names)
  if not floor then
    return 0
  end
  if max_age == 0 then
    return trim_below(main, floor, n)
  end
  local old = text(math.max(now - max_age, 0)) .. '-0'
  local removed = trim_below(main, before(old, floor) and old or floor, n)
  if max_messages > 0 then
    removed = removed + trim_below(main, floor, math.min(n - removed, redis.call('XLEN', main) - max_messages))
  end
  return removed
end

-- lose takes entries that are to be removed, ids from first to last, from a group, and counts what it had not settled. k is
-- where the group's keys begin in keys: retry, keys, parked, parked data, stats.
local function lose(main, partition, group, g, entries, keys, k)
  local unread, by_id = 0, {}
  for _, entry in ipairs(entries) do
    by_id[entry[1]] = entry[2]
    if before(g.last, entry[1]) then
      unread = unread + 1
    end
  end
  local lost = unread
  if g.lowest then
    for _, pending in ipairs(redis.call('XPENDING', main, group, entries[1][1], entries[#entries][1], #entries)) do
      local id = pending[1]
      lost = lost + redis.call('XACK', main, group, id)
      if by_id[id] then
        local fields = fields_of(by_id[id])
        free_key(keys[k + 1], keys[k + 2], keys[k + 3], keys[k], fields.k or '', message_of(partition, id, fields))
      end
    end
  end
  if unread > 0 then
    redis.call('HINCRBY', keys[k + 4], 'read', unread)
  end
  if lost > 0 then
    redis.call('HINCRBY', keys[k + 4], 'trimmed', lost)
  end
end

-- most_dropped bounds what one call removes, beside as many as it adds: after a lower bound was set there may be millions too many.
local most_dropped = 1000

-- drop_oldest removes the n oldest entries, settled or not, and counts them as trimmed for each group that had not settled
-- them. The keys of names[i] begin at first + 5 (i - 1).
local function drop_oldest(main, partition, names, keys, first, n)
  if n <= 0 then
    return
  end
  while n > 0 do
    local oldest = redis.call('XRANGE', main, '-', '+', 'COUNT', math.min(n, 100))
    if #oldest == 0 then
      break
    end
    local groups = groups_of(main)
    for at, name in ipairs(names) do
      if groups[name] then
        lose(main, partition, name, groups[name], oldest, keys, first + 5 * (at - 1))
      end
    end
    redis.call('XTRIM', main, 'MINID', '=', after(oldest[#oldest][1]))
    n = n - #oldest
  end
end

-- list gives n of a script's arguments from `at` on.
local function list(args, at, n)
  local all = {}
  for i = at, at + n - 1 do
    all[#all + 1] = args[i]
  end
  return all
end

-- foreign reports whether the stream has a group that is not among names.
local function foreign(main, names)
  local known = {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  for name in pairs(groups_of(main)) do
    if not known[name] then
      return true
    end
  end
  return false
end

-- room gives how many of `wanted` messages a partition may still take. Where that is not all it removes what is settled first.
-- It also tells whether the oldest must go for them, which is the caller's to do. bound is a table of max, drop (whether the
-- oldest may be removed), age, messages, names.
-- later says that the messages are to be scheduled, and so will not be among those that can be removed.
local function room(main, delayed, bound, now, wanted, later)
  if bound.max == 0 then
    return wanted
  end
  local scheduled = redis.call('ZCARD', delayed)
  local free = bound.max - scheduled - redis.call('XLEN', main)
  if free < wanted then
    trim_settled(main, bound.names, now, bound.age, bound.messages, wanted - free)
    free = bound.max - scheduled - redis.call('XLEN', main)
  end
  if bound.drop and free < wanted then
    -- Scheduled ones are not removed: only what lies in the stream can make room.
    local most = math.max(bound.max - scheduled, 0)
    return (later or most == 0) and math.min(wanted, most) or wanted, true
  end
  return math.max(free, 0)
end

-- known looks an idempotency key up: nil if it is new, else a result as the scripts answer it: the message's id, 1, and its due
-- time, or an error if it was used with another payload.
local function known(key, digest)
  local stored = redis.call('GET', key)
  if not stored then
    return nil
  end
  local first, id, due = string.match(stored, '^(%S+) (%S+) (%d+)$')
  if first ~= digest then
    return {'KEYREUSED'}
  end
  return {id, 1, due}
end
