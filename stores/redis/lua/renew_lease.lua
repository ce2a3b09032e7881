#!lua flags=allow-oom
-- Extends the lease of a shard's owner from now. A lease that was ended cannot be
-- renewed; one that merely ran out, with nobody else fencing, can. It runs on a
-- server that is out of memory too: mailboxes are read from their owner all the
-- same.
--
-- KEYS[1] shard (hash)
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- ARGV[3] length of the lease in ms
-- ARGV[4] a test's clock in ms, or 0
local _, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
local lease = redis.call('HGET', KEYS[1], 'lease')
if lease == '0' then
  return refuse('NOTOWNER', 'the lease was ended')
elseif not whole(lease or '') then
  return corrupt('shard state')
end
redis.call('HSET', KEYS[1], 'lease', string.format('%d', clock(ARGV[4]) + tonumber(ARGV[3])))
return 1
