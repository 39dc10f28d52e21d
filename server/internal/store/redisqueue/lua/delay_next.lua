-- Tells how long it is until a line's first message is due.
--
-- KEYS[1] :delayed or :g:<group>:retrying  ZSET message -> due ms
-- RETURNS ms, 0 if it is due, -1 if none waits.
local line = KEYS[1]

local first = first_due(line)
return first and math.max(first - now_ms(), 0) or -1
