-- Reads the end of a shard's log.
--
-- KEYS[1] meta  HASH of the shard
-- RETURNS what head returns.
local meta = KEYS[1]

return head(meta, now_ms())
