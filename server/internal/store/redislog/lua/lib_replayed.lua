-- Shared by the scripts that know of replayed dead letters. In S:replayed, whose scores are 0, each entry
-- that is for one group only has three members, which begin with a word for what is looked for:
-- "* <µs> <ord> <group> <message id>", "g <group> <µs>" and "i <message id> <group> <µs> <ord>". The µs
-- have 16 digits.

-- replayed_members returns the members of an entry.
local function replayed_members(us, ord, group, message)
  us, ord = string.format('%016d', us), text(ord)
  return '* ' .. us .. ' ' .. ord .. ' ' .. group .. ' ' .. message, 'g ' .. group .. ' ' .. us,
    'i ' .. message .. ' ' .. group .. ' ' .. us .. ' ' .. ord
end

-- replayed_elsewhere returns how many entries after one µs and up to another are for other groups.
local function replayed_elsewhere(replayed, group, after, to)
  local low, high = string.format('%016d', after + 1), string.format('%016d', to + 1)
  local own = 'g ' .. group .. ' '
  return redis.call('ZLEXCOUNT', replayed, '[* ' .. low, '(* ' .. high) - redis.call('ZLEXCOUNT', replayed, '[' .. own .. low, '(' .. own .. high)
end

-- forget_replayed removes what is kept about entries before a µs, 500 at most.
local function forget_replayed(replayed, us)
  local gone = redis.call('ZRANGEBYLEX', replayed, '[* ', '(* ' .. string.format('%016d', us), 'LIMIT', 0, 500)
  for _, member in ipairs(gone) do
    local its_us, ord, group, message = string.match(member, '^%* (%d+) (%d+) (%S+) (.+)$')
    redis.call('ZREM', replayed, replayed_members(tonumber(its_us), tonumber(ord), group, message))
  end
end
