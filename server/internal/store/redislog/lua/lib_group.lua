-- Shared by the scripts that create groups in a partition and move them.

-- place_of returns the position after which a group reads: of the first message ('-'), of the last one
-- ('$'), or of the last one before a µs.
local function place_of(main, last, ord, start)
  local first = start ~= '$' and redis.call('XRANGE', main, start, '+', 'COUNT', 1)[1]
  if not first then
    return text(last) .. '-' .. text(ord), ord
  end
  local first_us, first_ord = string.match(first[1], '^(%d+)-(%d+)$')
  return text(tonumber(first_us) - 1) .. '-' .. text(tonumber(first_ord) - 1), tonumber(first_ord) - 1
end

-- set_group writes the state of a group that has settled everything up to a place and nothing behind it.
local function set_group(state, uid, epoch, place, base)
  redis.call('HSET', state, 'uid', uid, 'epoch', epoch, 'ver', 0, 'cursor', place, 'sent', place, 'open', 0, 'base', text(base))
end

-- without_name returns the list of groups without a name.
local function without_name(groups, name)
  local left = {}
  for known in string.gmatch(groups, '%S+') do
    left[#left + 1] = known ~= name and known or nil
  end
  return table.concat(left, ' ')
end

-- with_name returns the list of groups with a name in it, and whether it was not there.
local function with_name(groups, name)
  for known in string.gmatch(groups, '%S+') do
    if known == name then
      return groups, false
    end
  end
  return groups == '' and name or groups .. ' ' .. name, true
end
