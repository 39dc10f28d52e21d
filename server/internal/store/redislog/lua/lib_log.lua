-- STUB: replaced by the shared library.
local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function text(n)
  return string.format('%d', n)
end

local function named(fields)
  local all = {}
  for at = 1, #fields, 2 do
    all[fields[at]] = fields[at + 1]
  end
  return all
end

local function size_field(ord)
  return 'n' .. math.floor(ord / 256)
end

local function scheduled_id(partition, us)
  return partition .. '-' .. us .. 'd'
end
