-- Shared by all scripts. Tests replace this file by a clock that they move.

-- now_us returns this server's time in µs since 1970. A script calls now_ms, and once: two calls could
-- return different times.
local function now_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
