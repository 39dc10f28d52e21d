-- Shared by all scripts. IDs and times are doubles here, which are exact up to 2^53: microseconds until
-- 2255.

-- now_us returns the time in microseconds.
local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- text writes a whole number. Lua's own way loses digits after the 14th.
local function text(n)
  return string.format('%d', n)
end

-- named returns the fields of an entry, or of an answer of Redis, by their names.
local function named(fields)
  local all = {}
  for at = 1, #fields, 2 do
    all[fields[at]] = fields[at + 1]
  end
  return all
end

-- size_field returns the field of S:sizes for an ordinal.
local function size_field(ord)
  return 'n' .. math.floor(ord / 256)
end

-- scheduled_id returns the ID of a message that was scheduled at a µs.
local function scheduled_id(partition, us)
  return partition .. '-' .. us .. 'd'
end
