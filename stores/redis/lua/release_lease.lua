#!lua flags=allow-oom
-- Ends the lease of a shard's owner at once. Epoch and token stay current.
--
-- KEYS[1] shard (hash)
-- ARGV[1] epoch
-- ARGV[2] token (hex)
local _, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
redis.call('HSET', KEYS[1], 'lease', '0')
return 1
